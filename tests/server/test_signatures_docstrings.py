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
        ("One line.", "One line.", {}),
        ("\n  Args:\n    city: The city.", None, {"city": "The city."}),
        ("\n  Args:\n    stray text\n    city: The city.", None, {"city": "The city."}),
        ("Args:\nnot indented", "Args:\nnot indented", {}),
        ("Say.\n\nReturns", "Say.\n\nReturns", {}),
        ("Say.\n\nReturns\n-------\nint", "Say.", {}),
        ("   \n  ", None, {}),
        ("", None, {}),
        (None, None, {}),
    ],
    ids=[
        "google",
        "numpy",
        "sphinx",
        "one line",
        "only arguments",
        "stray text",
        "no section",
        "a last word",
        "numpy at the end",
        "blank",
        "empty",
        "none",
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


def test_a_function_without_docstring_has_no_description() -> None:
    assert Signature.of(lambda: None).description is None
