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
        get_pull_request_status | Combined status of all checks of a pull request | owner repo pull_number
        merge_pull_request | Merge a pull request | owner repo pull_number merge_method
        create_pull_request_review | Review a pull request: approve, request changes or comment | owner repo event
        get_file_contents | Contents of a file or directory in a repository | owner repo path ref
        create_or_update_file | Commit one file to a branch | owner repo path content message
        push_files | Commit several files at once | owner repo branch files message
        create_branch | Create a branch | owner repo branch from_branch
        list_branches | List the branches of a repository | owner repo
        list_commits | History of a branch | owner repo sha
        fork_repository | Fork a repository to your account | owner repo organization
        create_repository | Create a repository | name description private
        search_repositories | Search for repositories | query
        search_code | Search for code across repositories | query
        search_users | Search for users | query
        list_workflow_runs | Runs of a GitHub Actions workflow | owner repo workflow_id
        rerun_workflow | Start a failed workflow run again | owner repo run_id
        create_release | Publish a release for a tag | owner repo tag_name
        star_repository | Star a repository | owner repo
        create_gist | Create a gist | files public
    """,
    "slack": """
        slack_list_channels | List public channels of the workspace | limit cursor
        slack_post_message | Post a message to a channel | channel_id text
        slack_reply_to_thread | Reply in a message thread | channel_id thread_ts text
        slack_add_reaction | Add an emoji reaction to a message | channel_id timestamp reaction
        slack_get_channel_history | Recent messages of a channel | channel_id limit
        slack_get_thread_replies | All replies in a thread | channel_id thread_ts
        slack_get_users | List the members of the workspace | cursor limit
        slack_get_user_profile | Profile of a user | user_id
        slack_create_channel | Create a channel | name is_private
        slack_invite_to_channel | Invite users to a channel | channel_id users
        slack_set_status | Set your own status text and emoji | status_text status_emoji
        slack_search_messages | Search messages | query
        slack_upload_file | Share a file in a channel | channel_id path
        slack_schedule_message | Send a message later | channel_id text post_at
        slack_pin_message | Pin a message | channel_id timestamp
    """,
    "filesystem": """
        read_text_file | Read the whole text of a file, or its first or last lines | path head tail
        read_media_file | Read an image or audio file as base64 | path
        read_multiple_files | Read several files at once | paths
        write_file | Create a file or overwrite it | path content
        edit_file | Replace lines in a text file and show a diff | path edits dryRun
        create_directory | Make a directory | path
        list_directory | List files and directories in a path | path
        list_directory_with_sizes | List a directory with file sizes | path sortBy
        directory_tree | Tree view of files and directories as JSON | path excludePatterns
        move_file | Move or rename files and directories | source destination
        search_files | Find files whose name matches a pattern | path pattern excludePatterns
        get_file_info | Size, times and permissions of a file | path
        delete_file | Delete a file for good | path
        list_allowed_directories | Directories this server may access |
    """,
    "postgres": """
        query | Run a read-only SQL query | sql
        execute | Run a SQL statement that changes data | sql
        list_schemas | List the schemas of the database |
        list_tables | List the tables of a schema | schema
        describe_table | Columns, types and keys of a table | table
        explain_query | Show the plan of a query | sql analyze
        list_indexes | Indexes of a table and how often they are used | table
        analyze_db_health | Check vacuum, bloat, connections and cache hit rate |
        get_top_queries | The slowest queries by total time | limit
        create_index | Create an index | table columns
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
        delete_email | Delete an email for good | messageId
        list_email_labels | List all labels |
        create_label | Create a label | name
        download_attachment | Save an attachment to disk | messageId attachmentId savePath
        create_filter | Sort incoming mail by a rule | criteria action
        unsubscribe | Leave a mailing list | messageId
    """,
    "jira": """
        jira_search | Search issues with JQL | jql fields
        jira_get_issue | Details of a Jira issue | issue_key
        jira_create_issue | Create a Jira issue | project_key summary issue_type description
        jira_update_issue | Change fields of a Jira issue | issue_key fields
        jira_delete_issue | Delete a Jira issue | issue_key
        jira_add_comment | Comment on a Jira issue | issue_key comment
        jira_add_worklog | Log time spent on an issue | issue_key time_spent
        jira_get_transitions | Statuses an issue can move to | issue_key
        jira_transition_issue | Move an issue to another status | issue_key transition_id
        jira_link_issues | Link two issues | type inward outward
        jira_get_agile_boards | List agile boards | board_name
        jira_get_sprint_issues | Issues in a sprint | sprint_id
        jira_create_sprint | Create a sprint | board_id name start_date
        jira_get_user_profile | Profile of a Jira user | user_identifier
    """,
    "confluence": """
        confluence_search | Search pages with CQL | query limit
        confluence_get_page | Content of a page | page_id
        confluence_create_page | Create a page in a space | space_key title content
        confluence_update_page | Change a page | page_id title content
        confluence_delete_page | Delete a page | page_id
        confluence_get_comments | Comments on a page | page_id
        confluence_add_comment | Comment on a page | page_id content
    """,
    "notion": """
        API-post-search | Search pages and databases by title | query
        API-retrieve-a-page | Retrieve a page | page_id
        API-post-page | Create a page | parent properties
        API-patch-page | Update page properties | page_id properties
        API-post-database-query | Query a database with filters and sorts | database_id filter sorts
        API-get-block-children | Retrieve block children | block_id
        API-patch-block-children | Append block children | block_id children
        API-create-a-comment | Create a comment | parent rich_text
        API-get-users | List all users |
    """,
    "browser": """
        browser_navigate | Go to a URL | url
        browser_navigate_back | Go back to the previous page |
        browser_click | Click an element of the page | element ref
        browser_type | Type text into an editable element | element ref text
        browser_fill_form | Fill several form fields | fields
        browser_take_screenshot | Take a screenshot of the page | filename fullPage
        browser_snapshot | Accessibility snapshot of the page |
        browser_select_option | Choose an option in a dropdown | element ref values
        browser_hover | Hover over an element | element ref
        browser_press_key | Press a key on the keyboard | key
        browser_evaluate | Evaluate JavaScript on the page | function
        browser_console_messages | All console messages | onlyErrors
        browser_network_requests | All network requests since the page was loaded |
        browser_file_upload | Upload files through a file chooser | paths
        browser_pdf_save | Save the page as PDF | filename
        browser_tab_new | Open a new tab | url
        browser_close | Close the page |
        browser_wait_for | Wait for text to appear or disappear, or for some time | text time
    """,
    "kubernetes": """
        pods_list | List pods in all namespaces | labelSelector
        pods_log | Logs of a pod | name namespace container tail
        pods_delete | Delete a pod | name namespace
        pods_exec | Run a command in a container | name namespace command
        pods_top | CPU and memory use of pods | namespace
        deployments_scale | Change the number of replicas of a deployment | name namespace replicas
        deployments_restart | Restart the rollout of a deployment | name namespace
        namespaces_list | List namespaces |
        events_list | Recent cluster events | namespace
        resources_create_or_update | Apply a manifest in YAML | resource
        helm_install | Install a Helm chart | chart name values
        helm_uninstall | Remove a Helm release | name
    """,
    "docker": """
        list_containers | List containers, running or all | all
        run_container | Start a container from an image | image ports env
        stop_container | Stop a container | container_id
        remove_container | Remove a container | container_id force
        fetch_container_logs | Logs of a container | container_id tail
        list_images | List local images |
        pull_image | Pull an image from a registry | repository tag
        build_image | Build an image from a Dockerfile | path tag
        create_volume | Create a volume | name
        list_networks | List networks |
    """,
    "sentry": """
        find_organizations | Organizations you have access to |
        find_issues | Find errors and issues, grouped, by query | query sortBy
        get_issue_details | Stack trace and details of an error | issueId
        update_issue | Resolve, assign or ignore an error | issueId status
        analyze_issue_with_seer | Root cause of an error by AI | issueId
        search_events | Search events and count errors, logs and spans | query
        create_project | Create a project and its DSN | name platform
    """,
    "stripe": """
        create_customer | Create a customer | name email
        list_customers | List customers | limit email
        create_invoice | Create an invoice | customer days_until_due
        finalize_invoice | Finalize an invoice | invoice
        create_refund | Refund a payment | payment_intent amount reason
        create_payment_link | Create a payment link | price quantity
        list_payment_intents | List payment intents | customer
        cancel_subscription | Cancel a subscription | subscription
        update_subscription | Change items of a subscription | subscription items
        create_coupon | Create a discount coupon | percent_off duration
        retrieve_balance | Money in the account |
        list_disputes | List disputed charges | charge
    """,
    "maps": """
        maps_geocode | Turn an address into coordinates | address
        maps_reverse_geocode | Turn coordinates into an address | latitude longitude
        maps_search_places | Search for places | query location radius
        maps_place_details | Details of a place: opening hours, phone, rating | place_id
        maps_distance_matrix | Distances and travel times between places | origins destinations mode
        maps_elevation | Height above sea level | locations
        maps_directions | Directions between two places | origin destination mode
    """,
    "weather": """
        get_forecast | Weather forecast of a place for the next days | latitude longitude days
        get_current_conditions | Temperature, wind and rain right now | location
        get_alerts | Active storm and flood warnings of a state | state
        get_air_quality | Air quality index and pollen | location
    """,
    "spotify": """
        search_tracks | Search for songs, albums and artists | query
        play_music | Start playing a track, album or playlist | uri
        pause_playback | Pause |
        skip_to_next | Next song |
        create_playlist | Create a playlist | name
        add_tracks_to_playlist | Add songs to a playlist | playlist_id uris
        set_volume | Volume in percent | volume
    """,
    "memory": """
        create_entities | Create entities in the knowledge graph | entities
        create_relations | Create relations between entities | relations
        add_observations | Add facts to an entity | observations
        delete_entities | Delete entities and their relations | entityNames
        read_graph | Read the whole knowledge graph |
        search_nodes | Search the knowledge graph | query
        open_nodes | Open entities by name | names
    """,
    "time": """
        get_current_time | Current time in a timezone | timezone
        convert_time | Convert time between timezones | source_timezone time target_timezone
    """,
    "fetch": """
        fetch | Fetch a URL from the internet and give its contents as markdown | url max_length raw
    """,
    "figma": """
        get_file | Layout and styles of a Figma file | fileKey depth
        download_figma_images | Download SVG and PNG images used in a design | fileKey nodes localPath
        get_comments | Comments of a design | fileKey
        get_variable_defs | Colours, spacing and fonts defined as variables | nodeId
    """,
    "aws": """
        s3_list_buckets | List buckets | region
        s3_get_object | Download an object | bucket key
        s3_put_object | Upload an object | bucket key body
        ec2_describe_instances | List virtual machines | region filters
        ec2_start_instances | Start virtual machines | instance_ids
        ec2_stop_instances | Stop virtual machines | instance_ids
        lambda_invoke | Invoke a function | function_name payload
        cloudwatch_get_metric | Values of a metric over time | namespace metric_name period
        cloudwatch_query_logs | Search log groups | log_group query
        iam_list_users | List IAM users |
        cost_get_usage | What was spent, by service and day | start end granularity
        secrets_get_value | Read a secret | secret_id
        route53_list_records | List DNS records of a zone | zone_id
    """,
    "home": """
        turn_on_light | Switch a lamp on | entity_id brightness
        turn_off_light | Switch a lamp off | entity_id
        set_thermostat | Set the target temperature of a room | entity_id temperature
        lock_door | Lock a door | entity_id
        camera_snapshot | Take a picture with a camera | entity_id
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
    "asana": "task project section portfolio goal",
    "shopify": "order product collection inventory_level discount fulfillment gift_card draft_order location metafield",
    "workday": "employee absence_request job_requisition expense_report position payslip course benefit review skill",
}

#: What somebody might ask for, and the tool that does it.
NEEDLES = [
    ("open a bug report in the repository", "github/create_issue"),
    ("make a PR from my branch", "github/create_pull_request"),
    ("which files were changed in this pull request", "github/get_pull_request_files"),
    ("approve a pull request", "github/create_pull_request_review"),
    ("did CI pass on the pull request", "github/get_pull_request_status"),
    ("rerun the failed GitHub Actions job", "github/rerun_workflow"),
    ("find where a function is used in our code", "github/search_code"),
    ("see the commit history", "github/list_commits"),
    ("tell the team on slack that we are done", "slack/slack_post_message"),
    ("what was said in the channel recently", "slack/slack_get_channel_history"),
    ("answer in a slack thread", "slack/slack_reply_to_thread"),
    ("react with a thumbs up emoji", "slack/slack_add_reaction"),
    ("read a file", "filesystem/read_text_file"),
    ("rename a file", "filesystem/move_file"),
    ("make a new folder", "filesystem/create_directory"),
    ("what files are in this directory", "filesystem/list_directory"),
    ("find files by name pattern", "filesystem/search_files"),
    ("how large is a file and when was it modified", "filesystem/get_file_info"),
    ("run a SQL query", "postgres/query"),
    ("what columns does the table have", "postgres/describe_table"),
    ("slow queries in the database", "postgres/get_top_queries"),
    ("schedule a meeting with two people tomorrow", "google_calendar/createEvent"),
    ("am I free on Friday afternoon", "google_calendar/getFreeBusy"),
    ("decline a meeting invitation", "google_calendar/respondToEvent"),
    ("send an email to Anna", "gmail/send_email"),
    ("find mails from my bank", "gmail/search_emails"),
    ("save the attachment of a mail", "gmail/download_attachment"),
    ("create a jira ticket", "jira/jira_create_issue"),
    ("move the ticket to done", "jira/jira_transition_issue"),
    ("log two hours of work on an issue", "jira/jira_add_worklog"),
    ("what is in the current sprint", "jira/jira_get_sprint_issues"),
    ("write a wiki page in confluence", "confluence/confluence_create_page"),
    ("take a screenshot of the web page", "browser/browser_take_screenshot"),
    ("click the login button", "browser/browser_click"),
    ("show logs of a pod", "kubernetes/pods_log"),
    ("scale the deployment to five replicas", "kubernetes/deployments_scale"),
    ("stop a running container", "docker/stop_container"),
    ("refund a customer's payment", "stripe/create_refund"),
    ("how much money is in our account", "stripe/retrieve_balance"),
    ("will it rain tomorrow", "weather/get_forecast"),
    ("how long does it take to drive from Bern to Basel", "maps/maps_distance_matrix"),
    ("what time is it in Tokyo", "time/get_current_time"),
    ("download the contents of a website", "fetch/fetch"),
    ("how much did we spend on AWS last month", "aws/cost_get_usage"),
    ("stack trace of an error", "sentry/get_issue_details"),
    ("update an expense report", "workday/update_expense_report"),
    ("switch the lights off", "home/turn_off_light"),
    ("play some music", "spotify/play_music"),
    # These were written after the words and weights of search were settled.
    ("add a comment to a github issue", "github/add_issue_comment"),
    ("fork the repo", "github/fork_repository"),
    ("publish a new release", "github/create_release"),
    ("invite somebody to a slack channel", "slack/slack_invite_to_channel"),
    ("who is in our slack workspace", "slack/slack_get_users"),
    ("remove a file from disk", "filesystem/delete_file"),
    ("overwrite a file with new text", "filesystem/write_file"),
    ("insert rows into a table", "postgres/execute"),
    ("show the query plan", "postgres/explain_query"),
    ("what's on my calendar this week", "google_calendar/listEvents"),
    ("cancel the appointment", "google_calendar/deleteEvent"),
    ("label an email as important", "gmail/modify_email"),
    ("assign a jira issue to Ben", "jira/jira_update_issue"),
    ("look up a wiki page", "confluence/confluence_search"),
    ("type my name into the search box", "browser/browser_type"),
    ("open https://example.com in the browser", "browser/browser_navigate"),
    ("restart a deployment", "kubernetes/deployments_restart"),
    ("build a docker image", "docker/build_image"),
    ("end a customer's subscription", "stripe/cancel_subscription"),
    ("send a bill to a customer", "stripe/create_invoice"),
    ("restaurants near me", "maps/maps_search_places"),
    ("coordinates of an address", "maps/maps_geocode"),
    ("is there a storm warning", "weather/get_alerts"),
    ("make the living room warmer", "home/set_thermostat"),
    ("upload an object to s3", "aws/s3_put_object"),
    ("which virtual machines are running", "aws/ec2_describe_instances"),
    ("remember a fact about a person", "memory/add_observations"),
    ("find a song", "spotify/search_tracks"),
    ("colours used in the design", "figma/get_variable_defs"),
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
