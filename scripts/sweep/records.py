"""What the sweep asks for and what it got, one record a model."""

from __future__ import annotations

from opcheck.model import Record, Scalar

Config = dict[str, Scalar | list[object] | dict[str, object]]

#: Where an audit can end without a verdict.
STAGES = ("load", "inputs", "run", "judge")


class Job(Record, frozen=True, kw_only=True):
    """One model of a library."""

    #: as ``opcheck audit`` takes it
    spec: str
    #: whose model it is: a family of timm, the configuration of a transformers model ...
    family: str
    #: settings without which the class does not build
    config: Config = {}

    @property
    def library(self) -> str:
        """transformers, timm, torchvision or diffusers."""
        return self.spec.partition(":")[0]


class Result(Record, frozen=True, kw_only=True):
    """What the audit of one model came to."""

    spec: str
    family: str
    #: the configuration that was audited; empty: the library's default
    config: Config = {}
    #: one of opcheck.pipeline.HEADLINES; empty: there is no report
    headline: str = ""
    complete: bool = False
    calls: int = 0
    operators: int = 0
    #: overloads by what the target does with them: unsupported, fallback_env ...
    overloads: dict[str, list[str]] = {}
    #: kind of the problem that ended the run, or the error that the tool gave
    problem: str = ""
    message: str = ""
    where: str = ""
    #: one of STAGES, of an audit without a verdict
    stage: str = ""
    #: what the same model did without opcheck, on the CPU: empty where it was not asked
    plain: str = ""
    seconds: float = 0.0

    @property
    def library(self) -> str:
        """transformers, timm, torchvision or diffusers."""
        return self.spec.partition(":")[0]

    @property
    def audited(self) -> bool:
        """Whether there is a verdict: the run came to its end, or an operator that fails was found before."""
        return bool(self.headline) and (self.complete or self.headline == "fails")
