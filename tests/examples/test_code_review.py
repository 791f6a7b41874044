"""The tests that stand beside the code review, run with the others."""

from __future__ import annotations

from examples.code_review.test_code_review import (
    test_a_github_server_that_dies_on_the_way_ends_with_a_readable_report,
    test_a_github_server_that_does_not_start_ends_with_a_readable_report,
    test_a_github_server_that_is_not_there_ends_with_a_readable_report,
    test_a_model_that_is_none_ends_with_a_readable_report,
    test_a_review_reads_fetches_analyses_and_posts_after_consent,
    test_a_slack_server_that_is_not_there_is_a_problem_that_the_report_names,
    test_refused_consent_posts_nothing,
    test_the_filesystem_client_declares_nothing,
    test_the_github_client_declares_elicitation_and_nothing_else,
    test_the_model_can_find_out_which_channel_to_tell,
    test_the_model_sees_the_file_as_it_is,
    test_the_second_configuration_adds_slack_and_changes_nothing_else,
    test_the_team_and_the_channels_of_slack_may_be_left_out,
    test_what_is_wrong_on_the_command_line_is_said_before_anything_starts,
    test_who_interrupts_the_review_sees_no_traceback,
    test_with_slack_the_team_is_told_after_consent,
    test_without_anybody_to_ask_nothing_is_posted,
)

__all__ = [
    "test_a_github_server_that_dies_on_the_way_ends_with_a_readable_report",
    "test_a_github_server_that_does_not_start_ends_with_a_readable_report",
    "test_a_github_server_that_is_not_there_ends_with_a_readable_report",
    "test_a_model_that_is_none_ends_with_a_readable_report",
    "test_a_review_reads_fetches_analyses_and_posts_after_consent",
    "test_a_slack_server_that_is_not_there_is_a_problem_that_the_report_names",
    "test_refused_consent_posts_nothing",
    "test_the_filesystem_client_declares_nothing",
    "test_the_github_client_declares_elicitation_and_nothing_else",
    "test_the_model_can_find_out_which_channel_to_tell",
    "test_the_model_sees_the_file_as_it_is",
    "test_the_second_configuration_adds_slack_and_changes_nothing_else",
    "test_the_team_and_the_channels_of_slack_may_be_left_out",
    "test_what_is_wrong_on_the_command_line_is_said_before_anything_starts",
    "test_who_interrupts_the_review_sees_no_traceback",
    "test_with_slack_the_team_is_told_after_consent",
    "test_without_anybody_to_ask_nothing_is_posted",
]
