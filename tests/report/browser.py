"""A real browser that looks at a page: what it renders, what it says on its console."""

from __future__ import annotations

import base64
import html
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

LIMIT_S = 90
CONSOLE = re.compile(r"CONSOLE[^\]]*\] (.*)")


@dataclass(frozen=True)
class Seen:
    """What a look brought: values by name, and the lines of the console."""

    values: dict[str, Any]
    console: list[str]


def look(page: Path, expressions: Mapping[str, str], fragment: str = "", *, scripts: bool = True) -> Seen:
    """Open a page from its file and evaluate JavaScript in it.

    A probe is added to a copy, and admitted by its hash, so that the page's own policy stays in force. With
    `scripts` off the page's own are not run.
    """
    browser = shutil.which("chromium")
    assert browser is not None, "chromium is missing: apt-get install chromium (scripts/setup.sh does it)"
    body = ",".join(f"{json.dumps(name)}: {expression}" for name, expression in expressions.items())
    probe = (
        "addEventListener('load', () => { const out = document.createElement('pre'); out.id = 'probe';"
        f"out.textContent = JSON.stringify({{{body}}}); document.documentElement.append(out); }});"
    )
    admitted = f"script-src 'sha256-{base64.b64encode(sha256(probe.encode()).digest()).decode()}' "
    with tempfile.TemporaryDirectory(prefix="sclate-browser-") as folder:
        copy = Path(folder) / "page.html"
        text = page.read_text()
        policy = re.search(r"<meta http-equiv=[^>]*>", text)
        assert policy is not None
        before, _, after = text.partition(policy[0])
        widened = re.sub("script-src " if scripts else "script-src [^;]*", admitted, policy[0], count=1)
        copy.write_text(f"{before}{widened}<script>{probe}</script>{after}")
        done = subprocess.run(
            [
                browser,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--enable-logging=stderr",
                "--window-size=1280,900",
                f"--user-data-dir={folder}/profile",
                "--dump-dom",
                f"{copy.as_uri()}{fragment}",
            ],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=True,
        )
    found = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, f"the probe did not run:\n{done.stderr[-2000:]}"
    return Seen(json.loads(html.unescape(found[1])), CONSOLE.findall(done.stderr))
