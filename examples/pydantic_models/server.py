"""Your own pydantic models as arguments, results and forms. Trunkline never imports pydantic; your code does."""

from __future__ import annotations

from pydantic import BaseModel, Field

from trunkline import Context, Server

server = Server("people")


class Person(BaseModel):
    """A person."""

    name: str = Field(min_length=1, description="The full name")
    age: int = Field(ge=0, le=150)


class Card(BaseModel):
    """The result."""

    line: str
    adult: bool


class Contact(BaseModel):
    """What the user is asked for."""

    phone: str = Field(description="With the country code")


@server.tool
async def card(person: Person) -> Card:
    """Print a visiting card."""
    return Card(line=f"{person.name}, {person.age}", adult=person.age >= 18)


@server.tool
async def ask_contact(ctx: Context) -> str:
    """Ask the user for a phone number."""
    answer = await ctx.elicit("How can we reach you?", Contact)
    return answer.data.phone if answer.accepted else "no contact"


if __name__ == "__main__":
    server.run()
