"""The server of ``opcheck mcp``: each tool is a verb of the command line, run in a process of its own.

A process keeps what a model prints, and its end, away from the streams of the server.
"""

import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
from mcp.server import MCPServer
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field

from opcheck.common.text import one_line, shorten
from opcheck.common.tool import VERSION

#: seconds that an audit may take
_SECONDS = 900.0
#: characters of a diff or of an explanation, and of an error
_DIFF, _ERROR = 4000, 600
_INSTRUCTIONS = (
    "opcheck predicts what a PyTorch model does on the GPU of a Mac (MPS), from any machine. scan and fix read source, "
    "audit runs a model, op looks an operator up, explain has the page of each finding (OC101 ...). exit_code 3 means "
    "that it could not tell: do not read it as success. Predictions were not observed on a Mac."
)

Release = Annotated[str, Field(description="torch release such as 2.13; empty: the newest")]
Macos = Annotated[str, Field(description="macOS version such as 15; empty: the newest")]
Run = Callable[[Iterable[str]], Awaitable[CallToolResult]]


def make_server(folder: Path) -> MCPServer:
    """Return the server with its tools; paths are relative to ``folder``."""
    server = MCPServer("opcheck", version=VERSION, instructions=_INSTRUCTIONS, log_level="ERROR")

    async def run(arguments: Iterable[str]) -> CallToolResult:
        return await _run([*arguments], folder)

    _add_readers(server, run)
    _add_runners(server, run)
    return server


def _add_readers(server: MCPServer, run: Run) -> None:
    """Add the tools that run and write nothing."""
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)

    @server.tool(annotations=reads)
    async def op(
        query: Annotated[str, Field(description="aten::nonzero, torch.fft.rfft, nn.LSTM, isin ...")],
        torch: Release = "",
        macos: Macos = "",
        dtype: Annotated[str, Field(description="float16, bf16 ...")] = "",
    ) -> CallToolResult:
        """Look up how a torch release handles an operator on MPS: status, dtypes, limits, wrong results."""
        return await run(["op", *_flags(torch=torch, macos=macos, dtype=dtype), *_JSON, query])

    @server.tool(annotations=reads)
    async def scan(
        paths: Annotated[list[str], Field(description="files or folders", min_length=1)],
        torch: Release = "",
        macos: Macos = "",
    ) -> CallToolResult:
        """Find the lines of a source that were written for CUDA; nothing is run."""
        return await run(["scan", *_flags(torch=torch, macos=macos), *_JSON, *paths])

    @server.tool(annotations=reads)
    async def explain(
        code: Annotated[str, Field(description="a rule (OC101), a remedy or a statement's id")],
    ) -> CallToolResult:
        """Explain a finding: what it means and what to do."""
        return await run(["explain", "--", code])


def _add_runners(server: MCPServer, run: Run) -> None:
    """Add the tools that run a model or write files."""

    @server.tool(annotations=ToolAnnotations(read_only_hint=False, destructive_hint=False))
    async def audit(
        model: Annotated[str, Field(description="file.py:Net, package.module:attribute, transformers:BertModel")],
        torch: Release = "",
        macos: Macos = "",
        inputs: Annotated[tuple[str, ...], Field(description="1x3x224x224:float32; empty: derived")] = (),
        mode: Literal["inference", "train"] = "inference",
        dtype: Annotated[str, Field(description="dtype of the model: float16 ...")] = "",
        *,
        fallback: Annotated[bool, Field(description="PYTORCH_ENABLE_MPS_FALLBACK=1")] = False,
    ) -> CallToolResult:
        """Predict what each operator call of a model does on a Mac. This imports and runs the model's code."""
        flags = _flags(torch=torch, macos=macos, mode=mode, dtype=dtype)
        shapes = [f"--input={text}" for text in inputs]
        variable = ["--fallback"] if fallback else []
        return await run(["audit", "--quiet", *flags, *shapes, *variable, *_JSON, model])

    @server.tool(annotations=ToolAnnotations(read_only_hint=False, destructive_hint=True))
    async def fix(
        paths: Annotated[list[str], Field(description="files or folders", min_length=1)],
        *,
        apply: Annotated[bool, Field(description="write the files; else return a diff")] = False,
        unsafe: Annotated[bool, Field(description="also changes that need a review")] = False,
        torch: Release = "",
    ) -> CallToolResult:
        """Correct the lines that scan finds: returns a diff and writes nothing, unless apply is set."""
        flags = [*_flags(torch=torch), *(["--unsafe-fixes"] if unsafe else [])]
        how = ["--fix", *_JSON] if apply else ["--diff", "--"]
        return await run(["scan", *flags, *how, *paths])


#: The last flags of a verb: what follows is never read as a flag.
_JSON = ("--json", "--brief", "--")


def _flags(**values: str) -> list[str]:
    return [f"--{name}={value}" for name, value in values.items() if value]


async def _run(arguments: list[str], folder: Path) -> CallToolResult:
    """Run a verb, and return its answer with its exit code; an error of usage or input is an error of the tool."""
    environment = {**os.environ, "OPCHECK_COLOR": "never", "COLUMNS": "120"}
    try:
        with anyio.fail_after(_SECONDS):
            command = [sys.executable, "-m", "opcheck", *arguments]
            done = await anyio.run_process(command, cwd=folder, env=environment, check=False)
    except TimeoutError:
        return _error(f"opcheck {arguments[0]} took longer than {_SECONDS:g} s")
    except (OSError, ValueError) as error:  # a null character, or more than a process takes
        return _error(f"opcheck {arguments[0]} cannot take these arguments: {one_line(error)}")
    answer = done.stdout.decode("utf-8", "replace")
    notes = done.stderr.decode("utf-8", "replace").strip()
    if done.returncode not in {0, 1, 3} or not answer.strip():
        return _error(notes or answer) if done.returncode else _answer({"notes": notes}, 0)
    return _answer(_content(answer, notes, could_not_tell=done.returncode == 3), done.returncode)


def _content(answer: str, notes: str, *, could_not_tell: bool) -> dict[str, Any]:
    """Return the JSON of an answer, or its text, which is cut at a whole line."""
    if answer.startswith("{"):
        content: dict[str, Any] = json.loads(answer)
        return content | ({"note": shorten(notes, _ERROR)} if could_not_tell and notes else {})
    text = answer[:_DIFF].rpartition("\n")[0] if len(answer) > _DIFF else answer
    left_out = answer[len(text) :].strip("\n").count("\n") + 1 if text != answer else 0
    more = {"lines_left_out": left_out, "notes": notes}
    return {"text": text, **{name: value for name, value in more.items() if value}}


def _answer(content: dict[str, Any], code: int) -> CallToolResult:
    content = {"exit_code": code, **content}
    text = json.dumps(content, ensure_ascii=False)
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=content)


def _error(text: str) -> CallToolResult:
    text = shorten(text.strip() or "opcheck ended without an answer", _ERROR)
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)
