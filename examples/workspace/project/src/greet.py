"""Greets ships."""


def greet(ship: str, language: str = "en") -> str:
    """Greet a ship."""
    words = {"en": "Welcome", "no": "Velkommen", "is": "Velkomin"}
    return f"{words.get(language, 'Welcome')}, {ship}!"
