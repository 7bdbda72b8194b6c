"""The script that runs the pages of the documentation, on pages of its own."""

from __future__ import annotations

import pytest

from scripts.refresh_docs import PageError, refreshed


def test_a_page_is_a_program_in_a_folder_of_its_own() -> None:
    page = """\
```text title="a.txt"
one
two
```

<!-- head: 1 -->
```console
$ cat a.txt
old
$ false
$ echo $?
```
"""
    new = page.replace("old\n", "one\n...\n").replace("$ echo $?\n", "$ echo $?\n1\n")
    assert refreshed(page) == new
    assert refreshed(new) == new


def test_another_digest_is_no_difference() -> None:
    page = "```console\n$ echo op lists 0123456789ab\nop lists 4ef1a6e9054c\n```\n"
    assert refreshed(page) == page


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ("```sh\nopcheck op mm\n```\n", "neither run nor marked"),
        ("```\nopcheck op mm\n```\n", "neither run nor marked"),
        ("<!-- not run: -->\n```sh\nls\n```\n", "neither run nor marked"),
        ("<!-- hidden: yes -->\n```console\n$ ls\n```\n", "is none of"),
        ("```console\nls\n```\n", "begins with"),
        ("```console\n$ exit 2\n```\n", "exit code 2"),
    ],
)
def test_a_block_that_nobody_runs_is_an_error(page: str, problem: str) -> None:
    with pytest.raises(PageError, match=problem):
        refreshed(page)
