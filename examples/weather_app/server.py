"""A server with a page: hosts that show pages (MCP Apps) show the forecast in it, all others get it as text.

Start it with ``python -m examples.weather_app.server``. The weather is made up from the name of the city and the time,
so that the example needs no network.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from trunkline import Server, ToolError

__all__ = ["PANEL", "Day", "Forecast", "make_server", "server"]

PANEL = "ui://weather/panel"
SKIES = ("clear", "some clouds", "overcast", "rain", "snow")
LONGEST_NAME = 80


@dataclass
class Day:
    """The weather of one day."""

    day: str
    sky: str
    low: int
    high: int


@dataclass
class Forecast:
    """The weather of a city."""

    city: str
    at: str
    days: list[Day]


def make_server(now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Server:
    """Create the server; ``now`` is its clock."""
    server = Server("weather-app", "Forecasts for cities, with a page that shows them.", version="1.0.0")

    # The page is a file, read again whenever a host asks for it. It loads nothing from elsewhere, so it declares no
    # origins, and a host lets it reach none.
    @server.app(PANEL, title="Weather panel", prefers_border=True)
    def panel() -> Path:
        """The forecast as a table that can be refreshed."""
        return Path(__file__).with_name("panel.html")

    @server.tool(app=PANEL, annotations={"readOnlyHint": True})
    def show_weather(city: str) -> Forecast:
        """Show the weather of the next three days in a city."""
        return _forecast(city, now())

    # Only the page calls it: models never see it, and neither do hosts without pages.
    @server.tool(app=PANEL, visibility=["app"], annotations={"readOnlyHint": True})
    def refresh_weather(city: str) -> Forecast:
        """Return the latest forecast for the city that the page shows."""
        return _forecast(city, now())

    return server


def _forecast(city: str, at: datetime) -> Forecast:
    name = " ".join(city.split())
    if not name or len(name) > LONGEST_NAME:
        raise ToolError(f"Pass the name of a city, with at most {LONGEST_NAME} characters.")
    return Forecast(name, f"{at:%H:%M} UTC", [_day(name, at + timedelta(days=number)) for number in range(3)])


def _day(city: str, at: datetime) -> Day:
    digest = hashlib.sha256(f"{city.casefold()} {at:%Y-%m-%d}".encode()).digest()
    low = digest[0] % 25 - 5
    return Day(f"{at:%A}", SKIES[digest[1] % len(SKIES)], low, low + 3 + digest[2] % 8)


server = make_server()

if __name__ == "__main__":
    server.run()
