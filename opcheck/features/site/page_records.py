"""The records of the pages: each page's JSON is its record (docs/reference/site-pages.md)."""

import hashlib
import re
from pathlib import PurePosixPath
from typing import Literal

from opcheck.common.vocabulary import StatementSort
from opcheck.common.yaml_text import load_shipped
from opcheck.data.lint import Regression
from opcheck.lookup.answer_records import Note
from opcheck.model.records import Evidence, Record

#: Of every JSON of a site.  Keys are only ever added; else the number goes up.
VERSION = 1


#: By kind or sort of page the patterns of its address, its title and its description.
_HEADS: dict[str, list[str]] = load_shipped(__file__, "page_heads.yaml")


class SitePage(Record, frozen=True, kw_only=True):
    """A page of the site; ``PAGES`` lists the kinds."""

    @property
    def page_head(self) -> list[str]:
        """Return the address without a suffix (``op/aten/nonzero``), the title and the description."""
        return [text.format(self) for text in _HEADS[getattr(self, "sort", type(self).__name__)]]

    @property
    def address(self) -> str:
        """Return the address without a suffix."""
        return self.page_head[0]


class Macos(Record, frozen=True, kw_only=True):
    """macOS versions: from ``since`` on, before ``until``; null: open."""

    since: str | None = None
    until: str | None = None


class Standing(Record, frozen=True, kw_only=True):
    """What some neighbouring releases do with a plain call, on some macOS versions."""

    #: the first and the last release line of the span.
    torch: tuple[str, str]
    macos: Macos
    #: ``native``, ``fallback_env`` ...: status and kind in one word.
    state: str
    #: its dtype: the first usual dtype with the best status.
    dtype: str
    #: the dtypes that fare differently.
    dtypes: dict[str, str]
    #: why, in the last release of the span.
    because: str


class Overload(Record, frozen=True, kw_only=True):
    """One overload, in the newest release that has it, on the newest macOS."""

    name: str
    #: that release line.
    torch: str
    state: str
    because: str
    #: first line with the current state ever since; ``≤2.13``: or longer.
    since: str
    first_native: str | None
    #: what the library registers (op_lists/README.md).
    registration: str
    evidence: tuple[Evidence, ...]
    #: place in ``tables``.
    table: int


class AffectingStatement(Record, frozen=True, kw_only=True):
    """A limitation or an advisory, and the affected overloads of the page."""

    note: Note
    overloads: tuple[str, ...]
    #: whether it applies to the release of the page.
    current: bool


class ReleaseChange(Record, frozen=True, kw_only=True):
    """A release that changed the main overload on the newest macOS, and the cause."""

    torch: str
    state: str
    change: str
    changed: tuple[str, ...]


class ModelOf(Record, frozen=True, kw_only=True):
    """A model with calls of the operator that are not native, and their targets."""

    model: str
    mode: str
    state: str
    #: on the target with most of them.
    calls: int
    #: by torch release line, the macOS versions.
    targets: dict[str, tuple[str, ...]]


class OperatorPage(SitePage, frozen=True, kw_only=True):
    """The page of an operator, with all of its overloads."""

    schema: str = f"opcheck-site-operator/{VERSION}"
    name: str
    #: functions of Python that end in it.
    python: tuple[str, ...]
    #: what answers at the head of the page.
    main: str
    torch: str
    macos: str
    state: str
    because: str
    prints: str
    since: str
    first_native: str | None
    overloads: tuple[Overload, ...]
    #: what the releases do: overloads with one ``table`` share it.
    tables: tuple[tuple[Standing, ...], ...]
    limitations: tuple[AffectingStatement, ...]
    advisories: tuple[AffectingStatement, ...]
    #: statements on every operator, by id.
    everywhere: tuple[str, ...]
    #: what releases took away
    lost: tuple[Regression, ...]
    history: tuple[ReleaseChange, ...]
    links: tuple[str, ...]
    #: models of the sweep where it is not native on some target; by mode, all that call it.
    not_native: tuple[ModelOf, ...] = ()
    used_by: dict[str, tuple[str, ...]] = {}

    @property
    def place(self) -> str:
        """Return its address."""
        return operator(self.name)


class Listed(Record, frozen=True, kw_only=True):
    """An operator in the list of all."""

    name: str
    state: str
    torch: str
    since: str
    overloads: int
    notes: int
    #: on that release and the newest macOS: the dtypes that fare differently from the usual dtype.
    differs: tuple[str, ...] = ()


class Operators(SitePage, frozen=True, kw_only=True):
    """The page of all operators."""

    schema: str = f"opcheck-site-operators/{VERSION}"
    torch: str
    macos: str
    operators: tuple[Listed, ...]


class Variable(Record, frozen=True, kw_only=True):
    """An environment variable that a release reads."""

    name: str
    meaning: str
    values: str
    default: str
    read: str
    #: ``new`` with this release, else empty.
    change: str = ""


class Differs(Record, frozen=True, kw_only=True):
    """An overload that fares differently than in the release before."""

    name: str
    change: str
    before: str | None
    after: str | None
    because: str
    #: dtype: state before and after.
    dtypes: dict[str, tuple[str, str]]


class StatementRef(Record, frozen=True, kw_only=True):
    """A statement that begins or ends to apply."""

    id: str
    sort: StatementSort
    summary: str


class ReleasePage(SitePage, frozen=True, kw_only=True):
    """The page of a release."""

    schema: str = f"opcheck-site-release/{VERSION}"
    torch: str
    release: str
    wheel: str
    sha256: str
    commit: str
    built: str
    minimum_macos: str
    #: what it prints on an older macOS.
    minimum_macos_text: str
    macos: str
    before: str | None
    after: str | None
    #: overloads that are no composites, by state, on the newest macOS.
    counts: dict[str, int]
    environment: tuple[Variable, ...]
    lost: tuple[Regression, ...]
    differs: tuple[Differs, ...]
    begins: tuple[StatementRef, ...]
    ends: tuple[StatementRef, ...]
    #: torchvision and torchaudio that go with it.
    libraries: tuple[str, ...]
    #: models of the sweep by headline, on the release's newest target.
    models: dict[str, int] = {}
    #: operator, and the models that it stops there, most of them first.
    stops: tuple[tuple[str, int], ...] = ()


class ListedRelease(Record, frozen=True, kw_only=True):
    """A release in the list of all."""

    torch: str
    release: str
    minimum_macos: str
    counts: dict[str, int]
    #: overloads by how they fare against the release before; empty: there is none.
    changes: dict[str, int]


class Releases(SitePage, frozen=True, kw_only=True):
    """The page of all releases, the oldest first."""

    schema: str = f"opcheck-site-releases/{VERSION}"
    macos: str
    releases: tuple[ListedRelease, ...]


class StatementPage(Record, frozen=True, kw_only=True):
    """A limitation or advisory, and the operators with this statement on their pages."""

    note: Note
    operators: tuple[str, ...]
    #: the release lines that it spans.
    torch: tuple[str, ...] = ()


class Statements(SitePage, frozen=True, kw_only=True):
    """The page of all limitations, or of all advisories."""

    schema: str = f"opcheck-site-statements/{VERSION}"
    sort: Literal["limitation", "advisory"]
    statements: tuple[StatementPage, ...]


class Rule(SitePage, frozen=True, kw_only=True):
    """The page of a finding or a remedy, as ``opcheck explain`` has it."""

    schema: str = f"opcheck-site-rule/{VERSION}"
    sort: Literal["finding", "remedy"]
    id: str
    title: str
    #: of a finding: what finds it, and how bad it is; a remedy has neither.
    found_by: str = ""
    severity: str = ""
    #: Markdown.
    page: str


class Rules(SitePage, frozen=True, kw_only=True):
    """The page of all of them."""

    schema: str = f"opcheck-site-rules/{VERSION}"
    rules: tuple[Rule, ...]


class Outcome(Record, frozen=True, kw_only=True):
    """A model on some targets that fare alike."""

    mode: str
    #: by torch release line, the macOS versions.
    targets: dict[str, tuple[str, ...]]
    fallback: bool
    headline: str
    complete: bool
    calls: int
    #: calls by state, those that are not native.
    not_native: dict[str, int]


class NotNative(Record, frozen=True, kw_only=True):
    """An operator that is not native for a model, and where."""

    op: str
    mode: str
    state: str
    calls: int
    targets: dict[str, tuple[str, ...]]
    fallback: bool


class Failure(Record, frozen=True, kw_only=True):
    """Why there is no verdict."""

    mode: str
    targets: dict[str, tuple[str, ...]]
    stage: str
    message: str
    where: str
    owner: str
    why: str


class ModelPage(SitePage, frozen=True, kw_only=True):
    """The page of a model."""

    schema: str = f"opcheck-site-model/{VERSION}"
    name: str
    library: str
    family: str
    #: the settings that made it small; empty: none.
    config: str
    #: on the newest target of the sweep, by mode.
    headlines: dict[str, str]
    torch: tuple[str, ...]
    macos: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    not_native: tuple[NotNative, ...]
    failures: tuple[Failure, ...]
    #: every operator that it calls: calls by mode.
    uses: dict[str, dict[str, int]]

    @property
    def place(self) -> str:
        """Return its address."""
        return model(self.name)


class ListedModel(Record, frozen=True, kw_only=True):
    """A model in the list of all."""

    name: str
    library: str
    headlines: dict[str, str]


class Models(SitePage, frozen=True, kw_only=True):
    """The page of all models: what the sweep was of."""

    schema: str = f"opcheck-site-models/{VERSION}"
    torch: tuple[str, ...]
    macos: tuple[str, ...]
    modes: tuple[str, ...]
    packages: dict[str, str]
    digest: str
    models: tuple[ListedModel, ...]


class Home(SitePage, frozen=True, kw_only=True):
    """The front page: what there is."""

    schema: str = f"opcheck-site/{VERSION}"
    tool: str
    op_lists: str
    torch: str
    macos: str
    operators: int
    models: int
    #: overloads that are no composites, by release line and state, on that macOS.
    counts: dict[str, dict[str, int]]
    #: operators by state.
    states: dict[str, int]
    #: the operators that stop most models on the newest target.
    stops: tuple[tuple[str, int], ...]
    advisories: int


#: The sorts of pages, in the order of the schema.
PAGES = (*(Home, OperatorPage, Operators, ReleasePage, Releases), *(Statements, Rule, Rules, ModelPage, Models))


#: The pages of the statements, by their sort.
STATEMENTS = {"limitation": "limitations", "advisory": "advisories"}
_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")


def operator(name: str) -> str:
    """Return the address of an operator or an overload: ``aten::add.Tensor`` is on the page of ``aten::add``."""
    namespace, _, base = name.partition(".")[0].partition("::")
    return f"op/{namespace}/{base}"


def release(line: str) -> str:
    """Return the address of a release line."""
    return f"release/{line}"


def statement(name: str, sort: str) -> str:
    """Return the address of a limitation or an advisory, which is a place on the page of all."""
    return f"{STATEMENTS[sort]}.html#{name}"


def model(name: str) -> str:
    """Return the address of a model: characters that no file name can have become a dash and a digest."""
    prefix, _, rest = name.partition(":")
    return "/".join(("model", *map(_file_name, [prefix, rest] if rest else [prefix])))


def _file_name(text: str) -> str:
    if _PLAIN.fullmatch(text) and not text.startswith("."):
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-") + f"-{digest}"


def to_top(path: str) -> str:
    """Return what leads from a page to the site's top: ``../../``, empty at the top."""
    return "../" * (len(PurePosixPath(path).parts) - 1)
