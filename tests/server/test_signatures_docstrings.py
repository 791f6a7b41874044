"""What is read from a docstring in the three styles people write."""

import pytest

from trunkline.server.docstrings import read_docstring
from trunkline.server.signatures import Signature

GOOGLE = """Forecast the weather.

    Looks at most ten days ahead.

    Args:
        city: The city,
            with its country.
        days (int, optional): How many days.
        *rest: The others.
        empty:

    Returns:
        A forecast: warm or cold.

    Raises:
        ValueError: when there is no such city.

    Note:
        Ask for one city at a time.
    """

NUMPY = """Forecast the weather.

    Parameters
    ----------
    city : str
        The city,
        with its country.
    days, hours : int, optional
        How long.
    bare : int
    not a name here!
        Text that belongs to nothing.

    Returns
    -------
    Forecast
        Warm or cold.

    Notes
    -----
    Ask for one city at a time.
    """

SPHINX = """Forecast the weather.

    :param city: The city,
        with its country.
    :param int days: How many days.
    :param empty:
    :type city: str
    :returns: a forecast
    :rtype: Forecast
    :raises ValueError: when there is no such city

    Ask for one city at a time.
    """


@pytest.mark.parametrize(
    ("text", "description", "about"),
    [
        (
            GOOGLE,
            "Forecast the weather.\n\nLooks at most ten days ahead.\n\nNote:\n    Ask for one city at a time.",
            {"city": "The city, with its country.", "days": "How many days.", "rest": "The others."},
        ),
        (
            NUMPY,
            "Forecast the weather.\n\nNotes\n-----\nAsk for one city at a time.",
            {"city": "The city, with its country.", "days": "How long.", "hours": "How long."},
        ),
        (
            SPHINX,
            "Forecast the weather.\n\nAsk for one city at a time.",
            {"city": "The city, with its country.", "days": "How many days."},
        ),
        pytest.param("One line.", "One line.", {}, id="one line"),
        pytest.param("\n  Args:\n    city: The city.", None, {"city": "The city."}, id="only arguments"),
        pytest.param("\n  Args:\n    stray text\n    city: The city.", None, {"city": "The city."}, id="stray text"),
        pytest.param("Args:\nnot indented", "Args:\nnot indented", {}, id="no section"),
        pytest.param("Say.\n\nReturns", "Say.\n\nReturns", {}, id="a last word"),
        pytest.param("Say.\n\nReturns\n-------\nint", "Say.", {}, id="numpy at the end"),
        pytest.param("   \n  ", None, {}, id="blank"),
        pytest.param("", None, {}, id="empty"),
        pytest.param(None, None, {}, id="none"),
    ],
)
def test_a_docstring_is_cut_into_description_and_parameters(
    text: str | None, description: str | None, about: dict[str, str]
) -> None:
    assert read_docstring(text) == (description, about)


def test_the_description_of_a_function_leaves_its_sections_out() -> None:
    def tool(city: str) -> None:
        """Do it.

        Args:
            city: The city.
        """

    signature = Signature.of(tool)

    assert signature.description == "Do it."
    assert signature.parameters[0].description == "The city."
