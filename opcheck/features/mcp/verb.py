"""``opcheck mcp``: a server of the Model Context Protocol, for agents and editors."""

from pathlib import Path
from typing import Annotated

from opcheck.cli.options import flag, verb
from opcheck.common.errors import UsageError, explain_missing


@verb("mcp")
def command(
    *, folder: Annotated[Path, flag("Folder that paths are relative to.", metavar="FOLDER", default_text=".")] = Path()
) -> int:
    """Serve until the client closes the streams."""
    hint = "pip install 'opcheck[mcp]'"
    with explain_missing("the server needs the package", "mcp", "anyio", context="opcheck mcp", hint=hint):
        from opcheck.features.mcp.tools import make_server
    if not folder.is_dir():
        raise UsageError("no such folder", context=f"--folder {folder}", hint="name the folder of a project")
    make_server(folder.resolve()).run("stdio")
    return 0
