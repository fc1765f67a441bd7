"""`driftline ui`."""

from __future__ import annotations

from typing import Annotated

import typer

from driftline.ui import LOCAL, lake_server


def ui(
    context: typer.Context,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, max=65535, help="The port. [default: 8642, or a free one]", show_default=False
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Listen on another address: whoever reaches it and has the URL reads the lake, unencrypted.",
        ),
    ] = LOCAL,
    allow_writes: Annotated[
        bool,
        typer.Option(
            "--allow-writes",
            help="Whoever has the URL may resolve, promote, replan, replay, discard and undo.",
        ),
    ] = False,
    no_open: Annotated[bool, typer.Option("--no-open", help="Only print the URL; open no browser.")] = False,
) -> None:
    """Show the lake in a browser; read-only, unless writes are allowed."""
    lake = context.obj.served()
    server = lake_server()
    with lake:
        settings = context.obj.config.settings_of if allow_writes else None
        pages = server(lake, host, port, settings, context.obj.options())
        if not pages.guard.address.is_local:
            typer.echo(f"{host} is an address of the network: the pages go over it unencrypted", err=True)
        does = "reads and writes" if allow_writes else "reads"
        typer.echo(f"{pages.url}\n{does} {pages.title}; Ctrl-C ends it")
        if not no_open:
            pages.show()
        with context.obj.interrupt.gently(pages.stop):
            pages.serve()
