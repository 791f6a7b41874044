"""A server whose method rings an alarm of an extension with any params, as a process."""

from __future__ import annotations

from typing import Any

from trunkline import Context, Extension, Server

ALARMS = "com.example/alarms"
SET = "notifications/alarms/set"
SEEN = "notifications/alarms/seen"


def alarms(**options: Any) -> Extension:
    """Define the extension without a function for its notifications."""
    extension = Extension(ALARMS, **options)

    @extension.method("alarms/ring", act="tool")
    async def ring(ctx: Context, items: list[Any]) -> dict[str, Any]:
        for params in items:
            await ctx.notify(SET, params)
        return {"rang": len(items)}

    return extension


def server(extension: Extension | None = None, **options: Any) -> Server:
    """Create a server with the extension."""
    return Server("alarms", extensions=[extension or alarms()], **options)


if __name__ == "__main__":
    server().run()
