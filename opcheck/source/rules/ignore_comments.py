"""Comments that ignore findings; the engine itself finds what is wrong with them."""

from opcheck.source.rule import ScanRule

WITHOUT_REASON = ScanRule(id="OC220", severity="warning", no_fix="a person must write the reason")
UNUSED = ScanRule(id="OC221", severity="warning", no_fix="the comment may be meant for another line")
