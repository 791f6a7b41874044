"""The tests that stand beside the tickets, run with the others."""

from __future__ import annotations

from examples.tickets.test_tickets import (
    test_a_created_ticket_is_found_read_and_kept,
    test_a_file_that_is_no_database_is_one_sentence,
    test_a_long_answer_is_cut_and_says_so,
    test_a_query_is_answered_with_columns_and_rows,
    test_a_query_that_does_more_than_read_is_refused,
    test_a_query_without_end_is_stopped,
    test_a_ticket_that_is_not_there_is_said_to_be_none,
    test_a_wildcard_is_searched_for_as_it_is,
    test_an_answer_is_bounded_in_bytes,
    test_it_serves_over_http,
    test_it_serves_over_stdio,
    test_search_tells_each_ticket_as_it_is_found,
    test_the_prompt_has_the_ticket_in_it,
    test_what_json_has_no_number_for_is_text,
    url,
)

__all__ = [
    "test_a_created_ticket_is_found_read_and_kept",
    "test_a_file_that_is_no_database_is_one_sentence",
    "test_a_long_answer_is_cut_and_says_so",
    "test_a_query_is_answered_with_columns_and_rows",
    "test_a_query_that_does_more_than_read_is_refused",
    "test_a_query_without_end_is_stopped",
    "test_a_ticket_that_is_not_there_is_said_to_be_none",
    "test_a_wildcard_is_searched_for_as_it_is",
    "test_an_answer_is_bounded_in_bytes",
    "test_it_serves_over_http",
    "test_it_serves_over_stdio",
    "test_search_tells_each_ticket_as_it_is_found",
    "test_the_prompt_has_the_ticket_in_it",
    "test_what_json_has_no_number_for_is_text",
    "url",
]
