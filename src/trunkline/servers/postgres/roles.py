"""What the connected role may do beyond reading, and the SQL for a better one.

The role is the boundary: a READ ONLY transaction does not keep a superuser from files and programs of the host.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

__all__ = ["ADVICE", "Role", "look_at_role"]

#: Roles that can reach files and programs of the database host.
_POWERS = ("pg_execute_server_program", "pg_read_server_files", "pg_write_server_files")
_QUESTION = """
SELECT current_user AS name, session_user AS session,
       (SELECT bool_or(rolsuper) FROM pg_catalog.pg_roles WHERE rolname IN (current_user, session_user)) AS superuser,
       ARRAY(
           SELECT rolname::text FROM pg_catalog.pg_roles
           WHERE rolname = ANY($1::text[]) AND pg_catalog.pg_has_role(session_user, oid, 'MEMBER') ORDER BY 1
       ) AS powers,
       ARRAY(
           SELECT c.oid::regclass::text FROM pg_catalog.pg_class c
           JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
           WHERE c.relkind IN ('r', 'p', 'v', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
             AND n.nspname NOT LIKE 'pg\\_temp%' AND n.nspname NOT LIKE 'pg\\_toast%'
             AND pg_catalog.has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')
           ORDER BY 1 LIMIT 3
       ) AS writable,
       (SELECT bool_or(pg_catalog.has_schema_privilege(oid, 'CREATE')) FROM pg_catalog.pg_namespace
        WHERE nspname NOT LIKE 'pg\\_%') AS creates
"""
ADVICE = (
    "Make a role that can only read, and connect as it: "
    "CREATE ROLE mcp_reader LOGIN PASSWORD '...' NOSUPERUSER NOCREATEDB NOCREATEROLE; "
    "GRANT USAGE ON SCHEMA public TO mcp_reader; "
    "GRANT SELECT ON ALL TABLES IN SCHEMA public TO mcp_reader; "
    "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO mcp_reader;"
)


class Role(Struct, frozen=True):
    """The connected role and its privileges beyond reading."""

    name: str
    superuser: bool
    powers: tuple[str, ...]
    writable: tuple[str, ...]
    creates: bool

    @property
    def reaches_machine(self) -> str | None:
        """Why queries of this role could reach files or programs of the database host; None if they cannot."""
        if self.superuser:
            return "is a superuser"
        return f"is a member of {', '.join(self.powers)}" if self.powers else None

    @property
    def may_write(self) -> str | None:
        """What the role could change without the READ ONLY transaction; None if nothing."""
        if self.writable:
            return f"may write to tables ({', '.join(self.writable)})"
        return "may create tables" if self.creates else None


async def look_at_role(connection: Any) -> Role:
    """Query the privileges of the role of a connection."""
    row = await connection.fetchrow(_QUESTION, list(_POWERS))
    return Role(row["name"], bool(row["superuser"]), tuple(row["powers"]), tuple(row["writable"]), bool(row["creates"]))
