"""Five hundred tools as servers in use have them: the haystack, and needles to look for, of the search tests.

Most are written out, a line each: name, description, parameters. The rest are the five usual verbs over the records of
business systems, which is what makes real catalogs large and alike.
"""

from __future__ import annotations

import trunkline.types as t
from trunkline.host.upstreams.catalog.items import Offering

__all__ = ["NEEDLES", "offerings"]

_WRITTEN = {
    "github": """
        create_issue | Open a new issue in a repository | owner repo title body labels assignees
        list_issues | List issues in a repository, filtered by state and labels | owner repo state labels
        get_issue | Details of one issue | owner repo issue_number
        update_issue | Change the title, body, state or assignees of an issue | owner repo issue_number state
        add_issue_comment | Comment on an issue | owner repo issue_number body
        search_issues | Search issues and pull requests across GitHub | query sort order
        create_pull_request | Open a pull request from one branch into another | owner repo title head base
        list_pull_requests | List pull requests of a repository | owner repo state
        get_pull_request | Details of one pull request | owner repo pull_number
        get_pull_request_files | Files changed in a pull request | owner repo pull_number
        create_pull_request_review | Review a pull request: approve, request changes or comment | owner repo event
        rerun_workflow | Start a failed workflow run again | owner repo run_id
    """,
    "slack": """
        slack_list_channels | List public channels of the workspace | limit cursor
        slack_post_message | Post a message to a channel | channel_id text
        slack_reply_to_thread | Reply in a message thread | channel_id thread_ts text
        slack_add_reaction | Add an emoji reaction to a message | channel_id timestamp reaction
        slack_get_channel_history | Recent messages of a channel | channel_id limit
    """,
    "filesystem": """
        read_text_file | Read the whole text of a file, or its first or last lines | path head tail
        read_media_file | Read an image or audio file as base64 | path
        read_multiple_files | Read several files at once | paths
        write_file | Create a file or overwrite it | path content
        edit_file | Replace lines in a text file and show a diff | path edits dryRun
        create_directory | Make a directory | path
        list_directory | List files and directories in a path | path
        move_file | Move or rename files and directories | source destination
        search_files | Find files whose name matches a pattern | path pattern excludePatterns
        delete_file | Delete a file for good | path
    """,
    "postgres": """
        query | Run a read-only SQL query | sql
        execute | Run a SQL statement that changes data | sql
        list_schemas | List the schemas of the database |
        list_tables | List the tables of a schema | schema
    """,
    "google_calendar": """
        listCalendars | List the calendars you can see |
        listEvents | List upcoming events of a calendar | calendarId timeMin timeMax
        searchEvents | Search events by text | query
        createEvent | Create a calendar event with attendees and a place | summary start end attendees location
        updateEvent | Change an event | eventId start end
        deleteEvent | Delete an event | eventId
        getFreeBusy | When people are free or busy | timeMin timeMax items
        respondToEvent | Accept or decline an invitation | eventId response
    """,
    "gmail": """
        send_email | Send an email | to subject body cc attachments
        draft_email | Save a draft | to subject body
        read_email | Read one email by id | messageId
        search_emails | Search the mailbox in Gmail syntax | query maxResults
        modify_email | Add or remove labels of an email | messageId addLabelIds removeLabelIds
        download_attachment | Save an attachment to disk | messageId attachmentId savePath
    """,
    "jira": """
        jira_search | Search issues with JQL | jql fields
        jira_get_issue | Details of a Jira issue | issue_key
        jira_create_issue | Create a Jira issue | project_key summary issue_type description
        jira_update_issue | Change fields of a Jira issue | issue_key fields
        jira_delete_issue | Delete a Jira issue | issue_key
        jira_transition_issue | Move an issue to another status | issue_key transition_id
    """,
    "confluence": """
        confluence_search | Search pages with CQL | query limit
        confluence_get_page | Content of a page | page_id
        confluence_create_page | Create a page in a space | space_key title content
        confluence_update_page | Change a page | page_id title content
    """,
    "browser": """
        browser_navigate | Go to a URL | url
        browser_navigate_back | Go back to the previous page |
        browser_click | Click an element of the page | element ref
        browser_type | Type text into an editable element | element ref text
        browser_fill_form | Fill several form fields | fields
        browser_take_screenshot | Take a screenshot of the page | filename fullPage
    """,
    "kubernetes": """
        pods_list | List pods in all namespaces | labelSelector
        pods_log | Logs of a pod | name namespace container tail
        pods_delete | Delete a pod | name namespace
        pods_exec | Run a command in a container | name namespace command
    """,
    "docker": """
        list_containers | List containers, running or all | all
        run_container | Start a container from an image | image ports env
        stop_container | Stop a container | container_id
        remove_container | Remove a container | container_id force
    """,
    "sentry": """
        find_organizations | Organizations you have access to |
        find_issues | Find errors and issues, grouped, by query | query sortBy
        get_issue_details | Stack trace and details of an error | issueId
        update_issue | Resolve, assign or ignore an error | issueId status
    """,
    "stripe": """
        create_customer | Create a customer | name email
        list_customers | List customers | limit email
        create_invoice | Create an invoice | customer days_until_due
        create_refund | Refund a payment | payment_intent amount reason
        cancel_subscription | Cancel a subscription | subscription
    """,
    "weather": """
        get_forecast | Weather forecast of a place for the next days | latitude longitude days
        get_current_conditions | Temperature, wind and rain right now | location
        get_alerts | Active storm and flood warnings of a state | state
        get_air_quality | Air quality index and pollen | location
    """,
    "time": """
        get_current_time | Current time in a timezone | timezone
        convert_time | Convert time between timezones | source_timezone time target_timezone
    """,
    "fetch": """
        fetch | Fetch a URL from the internet and give its contents as markdown | url max_length raw
    """,
    "aws": """
        s3_list_buckets | List buckets | region
        s3_get_object | Download an object | bucket key
        s3_put_object | Upload an object | bucket key body
        ec2_describe_instances | List virtual machines | region filters
        cost_get_usage | What was spent, by service and day | start end granularity
    """,
}

_VERBS = {
    "list": ("List {}s", "limit cursor filter"),
    "get": ("Details of one {}", "id"),
    "create": ("Create a {}", "fields"),
    "update": ("Change fields of a {}", "id fields"),
    "delete": ("Delete a {}", "id"),
}
_RECORDS = {
    "salesforce": "account contact lead opportunity campaign contract order product quote task",
    "hubspot": "company deal owner pipeline engagement form workflow campaign landing_page quote",
    "zendesk": "ticket organization macro trigger view satisfaction_rating help_article brand group automation",
    "asana": "task project section portfolio goal milestone attachment custom_field team workspace",
    "netsuite": "vendor purchase_order sales_order journal_entry bill expense budget subsidiary fixed_asset warehouse",
    "greenhouse": "candidate application interview offer scorecard referral department office job_post prospect",
    "intercom": "conversation inbox help_center visitor segment tag admin note series survey",
    "shopify": "order product collection inventory_level discount fulfillment gift_card draft_order location metafield",
    "workday": "employee absence_request job_requisition expense_report position payslip course benefit review skill",
}

#: What somebody might ask for, and the tool that does it.
NEEDLES = [
    ("open a bug report in the repository", "github/create_issue"),
    ("make a PR from my branch", "github/create_pull_request"),
    ("which files were changed in this pull request", "github/get_pull_request_files"),
    ("approve a pull request", "github/create_pull_request_review"),
    ("rerun the failed GitHub Actions job", "github/rerun_workflow"),
    ("tell the team on slack that we are done", "slack/slack_post_message"),
    ("answer in a slack thread", "slack/slack_reply_to_thread"),
    ("read a file", "filesystem/read_text_file"),
    ("rename a file", "filesystem/move_file"),
    ("make a new folder", "filesystem/create_directory"),
    ("find files by name pattern", "filesystem/search_files"),
    ("run a SQL query", "postgres/query"),
    ("schedule a meeting with two people tomorrow", "google_calendar/createEvent"),
    ("am I free on Friday afternoon", "google_calendar/getFreeBusy"),
    ("send an email to Anna", "gmail/send_email"),
    ("find mails from my bank", "gmail/search_emails"),
    ("save the attachment of a mail", "gmail/download_attachment"),
    ("create a jira ticket", "jira/jira_create_issue"),
    ("move the ticket to done", "jira/jira_transition_issue"),
    ("write a wiki page in confluence", "confluence/confluence_create_page"),
    ("take a screenshot of the web page", "browser/browser_take_screenshot"),
    ("click the login button", "browser/browser_click"),
    ("show logs of a pod", "kubernetes/pods_log"),
    ("stop a running container", "docker/stop_container"),
    ("refund a customer's payment", "stripe/create_refund"),
    ("will it rain tomorrow", "weather/get_forecast"),
    ("what time is it in Tokyo", "time/get_current_time"),
    ("download the contents of a website", "fetch/fetch"),
    ("how much did we spend on AWS last month", "aws/cost_get_usage"),
    ("stack trace of an error", "sentry/get_issue_details"),
    ("update an expense report", "workday/update_expense_report"),
    ("add a comment to a github issue", "github/add_issue_comment"),
    ("remove a file from disk", "filesystem/delete_file"),
    ("what's on my calendar this week", "google_calendar/listEvents"),
    ("cancel the appointment", "google_calendar/deleteEvent"),
    ("assign a jira issue to Ben", "jira/jira_update_issue"),
    ("open https://example.com in the browser", "browser/browser_navigate"),
    ("end a customer's subscription", "stripe/cancel_subscription"),
    ("upload an object to s3", "aws/s3_put_object"),
    ("new hire job opening", "workday/create_job_requisition"),
    ("check stock of a product", "shopify/get_inventory_level"),
]


def offerings() -> dict[str, Offering]:
    """Give what the servers offer."""
    written = {server: [_tool(line) for line in lines.strip().splitlines()] for server, lines in _WRITTEN.items()}
    made = {server: _made(records.split()) for server, records in _RECORDS.items()}
    return {
        server: Offering(revision="any", capabilities={}, tools=tuple(tools))
        for server, tools in (written | made).items()
    }


def _tool(line: str) -> t.Tool:
    name, description, parameters = (cell.strip() for cell in line.split("|"))
    properties = {parameter: {"type": "string"} for parameter in parameters.split()}
    return t.Tool(name=name, description=description, input_schema={"type": "object", "properties": properties})


def _made(records: list[str]) -> list[t.Tool]:
    return [
        _tool(f"{verb}_{record} | {text.format(record.replace('_', ' '))} | {parameters}")
        for record in records
        for verb, (text, parameters) in _VERBS.items()
    ]
