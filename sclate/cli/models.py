"""`sclate model serve`: a keyless model on a loopback port."""

from __future__ import annotations

import asyncio
import errno
import json
from typing import Annotated

import typer

from sclate import registry
from sclate.cli.console import out
from sclate.config import ConfigurationError
from sclate.errors import PrerequisiteError
from sclate.models.serve import serve as serve_backend

app = typer.Typer(no_args_is_help=True, help="Models without a key.")


@app.callback()
def _group() -> None:
    """Models without a key."""


@app.command("serve")
def serve(
    name: Annotated[str, typer.Argument(help="A keyless model, see `sclate list models`.")],
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 picks one.")] = 0,
    option: Annotated[list[str] | None, typer.Option(help="name=value for the model.")] = None,
) -> None:
    """Serve it until interrupted."""
    options = {}
    for pair in option or []:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ConfigurationError(
                f"--option {pair!r} is none", "it has the form name=value", "--option script=FILE"
            )
        try:
            options[key] = json.loads(value)
        except ValueError:
            options[key] = value
    backend = registry.make_model(name, options)

    async def main() -> None:
        async with serve_backend(backend, port) as url:
            out.print(f"serving {name} at {url}", soft_wrap=True)
            await asyncio.Event().wait()

    try:
        asyncio.run(main())
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        raise PrerequisiteError(
            f"port {port} of 127.0.0.1 cannot be had", str(error.strerror), "--port 0 picks a free one"
        ) from None
