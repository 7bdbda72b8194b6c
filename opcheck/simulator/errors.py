"""Define the errors that end a simulation: unsupported actions, and values that it does not have."""


class NotSimulatedError(RuntimeError):
    """The simulation does not know what a Mac does here, or cannot do it."""


class RefusedError(RuntimeError):
    """The error text of a Mac that refuses the values of a call."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        #: the id of the refusal and its text, as a Call has them
        self.refusal = (kind, text)


class ProcessAbortedError(BaseException):
    """The process of a Mac ends here: by a failed assertion in Metal, or by an access of memory that is not there.

    It is no Exception, so that no program catches it.
    """


class DataDependentError(RuntimeError):
    """The program needs values that a run on shapes does not have."""


class OutsideError(RuntimeError):
    """A simulated tensor was used where no simulation is active."""
