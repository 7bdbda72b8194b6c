"""The chips whose time a user asks about."""

from __future__ import annotations

from opcheck.data.chips import load_chips
from opcheck.data.macs import MacOptions, chips_by_memory
from opcheck.model.options import Option

TIME = Option("Estimate the time, on every chip without --mac.")


def chips_of(mac: MacOptions, *, time: bool = False) -> tuple[str, ...]:
    """Return the chips that the options of a Mac mean, in the order of their release.

    Args:
        mac: the options; a memory alone means no chip, unless the time is asked for.
        time: the user asks for the time; without a Mac for every chip.

    Raises:
        UsageError: no Mac has the name.
    """
    macs = mac.macs() if mac.mac or time else ()
    names = {each.chip for each in macs}
    if "" in names:
        sold = chips_by_memory()
        names |= {chip for each in macs for chip in sold.get(each.memory, ())}
    return tuple(chip for chip in load_chips() if chip in names or (time and not macs))
