"""The name and the version of this program, as every document that it writes names it."""

VERSION = "0.1.0"
TOOL = f"opcheck {VERSION}"

#: Where the project is; a release puts the account in place of OWNER.
HOMEPAGE = "https://github.com/OWNER/opcheck"
