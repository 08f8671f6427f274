"""Every input has a bound: the table in the documentation says what the code says, and each row has its test."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "docs" / "operations.md").read_text().split("\n## Bounds\n")[1].split("\n## ")[0]
LISTED = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in SECTION.splitlines()
    if line.startswith("|") and not line.startswith(("| what", "|---"))
]
CODE = {
    "connections at once: to `/metrics` and `/healthz`; to all `healthCheckNodePort`s": (
        "system.listening.MAX_CONNECTIONS",
        "unit/system/test_listening.py::test_two_thousand_idle_connections_keep_nobody_out",
    ),
    "seconds of such a connection (one request)": (
        "system.listening.CONNECTION_SECONDS",
        "unit/system/test_listening.py::test_who_does_not_come_to_the_point_is_shown_the_door",
    ),
    "bytes of its request": (
        "system.listening.MAX_REQUEST",
        "unit/system/test_listening.py::test_what_is_no_question_is_told_so",
    ),
    "bytes of answers not read yet": (
        "system.listening.MAX_UNREAD",
        "unit/system/test_listening.py::test_answers_that_nobody_reads_have_a_bound_together",
    ),
    "ports for `healthCheckNodePort`": (
        "kubeproxy.watch.MAX_PORTS",
        "netns/kubeproxy/test_health_checks_served.py::test_the_rest_of_the_speaker_keeps_most_of_the_files_it_may_open",
    ),
    "addresses of other groups that an agent's Lease names": (
        "api.records.MAX_OF_GROUPS",
        "unit/api/test_records.py::test_what_other_groups_hold_is_read_as_it_was_said_and_of_too_much_a_part",
    ),
    "endpoints that are checked": (
        "health.prober.MAX_TARGETS",
        "unit/health/test_prober.py::test_of_too_many_endpoints_the_rest_count_as_well_and_are_told",
    ),
    "health checks under way at once": (
        "health.prober.MAX_AT_ONCE",
        "unit/health/test_prober.py::test_no_more_checks_are_under_way_than_may_be_and_late_ones_are_counted",
    ),
    "bytes of an answer's headers": (
        "health.prober.MAX_HEAD",
        "unit/health/test_behaviours.py::test_what_a_server_does_is_what_is_found",
    ),
    "parts in which they arrive, or a TLS handshake": (
        "health.prober.MAX_READS",
        "unit/health/test_behaviours.py::test_headers_in_too_many_parts_are_given_up",
    ),
    "bytes of a health check's CA file": (
        "health.prober.MAX_CA",
        "unit/health/test_behaviours.py::test_a_ca_without_end_is_not_read",
    ),
    "characters of the annotation `eip-speaker.io/health-check`": (
        "api.service.MAX_TEXT",
        "unit/api/test_health_check.py::test_what_cannot_be_read_is_refused_by_its_rule",
    ),
    "clients of the control socket": (
        "node.control.MAX_CLIENTS",
        "unit/system/test_listening.py::test_a_crowd_keeps_nobody_from_the_control_socket",
    ),
    "seconds until a client sends its command": (
        "node.control.COMMAND_SECONDS",
        "unit/node/test_control.py::test_who_says_nothing_or_half_a_line_is_shown_the_door",
    ),
    "bytes of a command": (
        "node.control.MAX_COMMAND",
        "unit/node/test_control.py::test_what_is_no_command_is_told_so_and_the_next_one_is_served",
    ),
    "file descriptors requested (`ulimit -n`, up to its hard limit)": (
        "system.process.WANTED",
        "unit/test_starved.py::test_every_edge_that_can_get_no_more_of_it_raises_an_error_of_ours",
    ),
    "threads, all started at the start": (
        "system.threads.THREADS",
        "unit/test_starved.py::test_every_edge_that_can_get_no_more_of_it_raises_an_error_of_ours",
    ),
    "seconds of one run of `nft`": (
        "system.programs.SECONDS",
        "unit/system/test_programs.py::test_a_program_that_hangs_is_ended",
    ),
    "seconds of one look at all chains by `nft`, every 10 s": (
        "forwarding.nftables.nft.LOOK_SECONDS",
        "unit/system/test_programs.py::test_a_look_that_hangs_is_ended_long_before_a_change_would_be",
    ),
    "bytes of a manifest file": (
        "standalone.manifests.MAX_FILE_BYTES",
        "unit/standalone/test_bounds.py::test_a_file_too_large_is_not_read",
    ),
    "documents in it": (
        "standalone.document.MAX_DOCUMENTS",
        "unit/standalone/test_bounds.py::test_what_has_no_end_is_refused",
    ),
    "nesting": (
        "standalone.document.MAX_DEPTH",
        "unit/standalone/test_bounds.py::test_what_has_no_end_is_refused",
    ),
    "characters that YAML aliases repeat": (
        "standalone.document.MAX_REPEATED",
        "unit/standalone/test_bounds.py::test_what_has_no_end_is_refused",
    ),
    "bits of an integer": (
        "standalone.document.MAX_BITS",
        "unit/standalone/test_bounds.py::test_a_number_of_too_many_digits_is_refused_in_its_line_wherever_it_stands",
    ),
    "mistakes listed in the log and `problems`": (
        "node.problems.SHOWN",
        "unit/node/test_report.py::test_mistakes_without_end_are_counted_and_told_up_to_a_bound",
    ),
    "bytes of the key file": (
        "ownership.hellos.keyfile.MAX_BYTES",
        "unit/ownership/hellos/test_keyfile.py::test_what_is_wrong_inside_is_said_with_the_file_and_without_the_content",
    ),
    "entries of `addresses` and `exclude`, in the API": (
        "crds.MAX_RANGES",
        "unit/standalone/test_bounds.py::test_twice_as_many_entries_take_about_twice_the_work",
    ),
    "silent nodes that an agent's Lease names": (
        "api.records.MAX_MISSED",
        "unit/api/test_records.py::test_whom_an_agent_misses_is_read_as_it_was_said_and_of_too_many_nothing_is",
    ),
    "seconds that an API server may ask to wait": (
        "api.objects.MAX_RETRY_AFTER",
        "unit/cluster/test_feed.py::test_a_refusal_is_read_from_whatever_came_with_it",
    ),
    "entries of a list stored once for all objects that share it": (
        "api.objects.MAX_KEPT_ENTRIES",
        "unit/api/test_kinds.py::test_who_writes_something_long_again_and_again_fills_no_memory",
    ),
    "characters of such a text": (
        "api.objects.MAX_KEPT_TEXT",
        "unit/api/test_kinds.py::test_who_writes_something_long_again_and_again_fills_no_memory",
    ),
    "bytes of a watch event": (
        "cluster.feed.MAX_LINE",
        "unit/cluster/test_feed.py::test_a_line_without_end_is_an_edge_error_and_long_ones_are_whole",
    ),
    "bytes of a whole API answer": (
        "cluster.client.MAX_ANSWER",
        "verified/test_reflector.py::test_a_page_of_too_many_bytes_comes_in_smaller_ones",
    ),
    "share of the memory limit for the API's objects": (
        "system.garbage.OBJECTS",
        "agents/test_a_tenants_weight.py::test_what_is_over_the_bound_is_named_and_comes_back_when_there_is_room",
    ),
    "share of the memory limit for the main process": (
        "system.garbage.MAIN",
        "unit/system/test_memory.py::test_who_can_get_no_more_memory_ends_with_the_reason_and_before_the_limit",
    ),
    "objects without room that are named": (
        "cluster.feed.MAX_NAMED",
        "unit/cluster/test_room.py::test_objects_without_end_are_set_aside_by_name_up_to_a_bound",
    ),
    "objects without room that are counted": (
        "cluster.feed.MAX_COUNTED",
        "unit/cluster/test_room.py::test_objects_without_end_are_counted_up_to_a_bound",
    ),
    "Services of others remembered to have slices": (
        "agent.mirrors.MAX_NOTED",
        "unit/agent/test_source.py::test_of_services_without_end_it_is_noted_of_all_that_they_have_slices",
    ),
    "Services that become ours at once and whose slices are fetched singly": (
        "agent.mirrors.MANY",
        "unit/agent/test_source.py::test_where_many_services_become_ours_at_once_everything_is_listed_anew",
    ),
    "address and port pairs of a slice, and of a Service": (
        "api.endpoints.MAX_ENDPOINTS",
        "unit/agent/test_view.py::test_a_slice_and_a_service_have_no_more_endpoints_than_can_be_carried",
    ),
    "address and port pairs read for a Service": (
        "agent.view.MAX_READ",
        "unit/agent/test_view.py::test_of_slices_without_end_no_more_are_read_than_may_be_used_whichever_came_first",
    ),
    "bytes that a main process leaves unread": (
        "wire.sender.MAX_WAITING",
        "unit/wire/test_conversation.py::test_a_main_process_that_reads_nothing_is_hung_up_on",
    ),
    "link failures waiting for a main process": (
        "wire.sender.MAX_FAILURES",
        "unit/wire/test_conversation.py::test_links_that_failed_while_nobody_listened_are_told_once_to_the_next",
    ),
    "loop delays waiting to be reported": (
        "wire.sender.MAX_DELAYS",
        "unit/wire/test_conversation.py::test_of_delays_without_end_the_longest_is_kept",
    ),
    "measurements of loop lateness waiting to be reported": (
        "telemetry.lateness.MAX_LOOKS",
        "unit/telemetry/test_lateness.py::test_looks_that_nobody_takes_are_bounded_and_the_longest_is_kept",
    ),
    "bytes of what the API said last, in the runtime directory": (
        "agent.last_known.MAX_BYTES",
        "unit/agent/test_known.py::test_a_file_that_unpacks_without_end_is_refused",
    ),
    "bytes of that file, compressed": (
        "agent.last_known.MAX_PACKED",
        "unit/agent/test_known.py::test_a_file_that_is_longer_than_any_of_ours_is_refused",
    ),
    "unexpected errors logged in full": (
        "telemetry.logs.MAX_KNOWN",
        "unit/telemetry/test_internal_errors.py::test_errors_without_end_are_counted_and_logged_up_to_a_bound",
    ),
    "viewers of a page at once": (
        "telemetry.page.server.MOST",
        "unit/telemetry/page/test_server.py::test_one_too_many_that_look_is_told_so_and_there_is_room_when_one_goes",
    ),
    "bytes of page updates not read yet": (
        "system.listening.MAX_BEHIND",
        "unit/telemetry/page/test_server.py::test_who_does_not_read_is_let_go_and_others_are_told",
    ),
    "failovers that a page remembers": (
        "telemetry.page.document.MOST",
        "unit/telemetry/page/test_failovers.py::test_of_many_the_last_are_remembered",
    ),
    "events waiting for an MQTT broker": (
        "telemetry.mqtt.outbox.MAX_EVENTS",
        "unit/telemetry/mqtt/test_outbox.py::test_of_too_many_events_the_oldest_are_dropped_and_counted",
    ),
    "old topics at a broker waiting to be cleared": (
        "telemetry.mqtt.outbox.MAX_LEFTOVERS",
        "unit/telemetry/mqtt/test_outbox.py::test_leftovers_are_bounded",
    ),
    "bytes of a broker's message": (
        "telemetry.mqtt.connection.MAX_MESSAGE",
        "mqtt/test_brokers_in_trouble.py::test_a_hostile_broker_costs_a_connection_and_no_memory",
    ),
    "broker messages until the next question for retained ones": (
        "telemetry.mqtt.connection.MAX_MESSAGES",
        "mqtt/test_brokers_in_trouble.py::test_a_hostile_broker_costs_a_connection_and_no_memory",
    ),
    "bytes of a certificate or login file for a broker": (
        "telemetry.mqtt.connection.MAX_BYTES",
        "mqtt/test_brokers_in_trouble.py::test_a_file_that_is_no_good_is_named_and_none_of_it_shown",
    ),
    "endpoints of one port of a Service": (
        "forwarding.plan.MAX_REAL_SERVERS",
        "unit/forwarding/test_plan_of_a_world.py::test_of_endpoints_without_end_those_that_take_new_connections_are_used_up_to_a_bound_and_it_is_told",
    ),
    "selectors in `namespaceSelectors`, `serviceSelectors`": (
        "api.eip.MAX_SELECTORS",
        "unit/api/test_eip.py::test_a_pool_has_no_more_selectors_than_there_may_be",
    ),
    "addresses of each family that a Service names": (
        "api.service.MAX_ADDRESSES",
        "unit/api/test_service.py::test_of_addresses_without_end_no_more_are_looked_at_than_may_be_had",
    ),
    "addresses of a Service in its status or its record": (
        "api.service.MAX_HELD",
        "unit/controller/test_restore_from_statuses.py::test_of_a_record_no_more_is_looked_at_than_one_of_ours_says",
    ),
    "characters of the condition that names its pools": (
        "api.kinds.MAX_SAID",
        "unit/agent/test_view.py::test_of_what_a_condition_says_without_end_no_more_is_read_than_one_of_ours_says",
    ),
    "namespaces in `eip_speaker_pool_namespace_full`, of a pool and family": (
        "allocator.settle.MAX_FULL",
        "unit/allocator/test_tally.py::test_namespaces_that_have_all_they_may_are_counted_up_to_a_bound",
    ),
    "pools that a Service names": (
        "api.service.MAX_POOLS",
        "unit/api/test_service.py::test_of_pools_without_end_no_more_are_asked_for_than_may_be",
    ),
    "namespaces in `share-namespaces`": (
        "api.service.MAX_SHARE_NAMESPACES",
        "unit/api/test_service.py::test_no_more_namespaces_share_than_there_may_be_sharers",
    ),
    "source ranges of one list": (
        "api.service.MAX_SOURCE_RANGES",
        "unit/api/test_service.py::test_behind_too_many_source_ranges_nobody_is_let_in",
    ),
    "ports of a Service": (
        "api.service.MAX_PORTS",
        "unit/api/test_service.py::test_behind_too_many_ports_none_is_served",
    ),
    "unreadable source ranges of one list": (
        "api.service.MAX_MISSPELT",
        "unit/api/test_service.py::test_behind_too_many_source_ranges_that_cannot_be_read_none_is_looked_at_and_nobody_let_in",
    ),
    "unknown annotations of a Service for which a correction is suggested": (
        "api.service.MAX_UNKNOWN",
        "unit/api/test_service.py::test_of_annotations_without_end_that_are_none_of_ours_some_are_told",
    ),
    "Services that share one EIP": (
        "allocator.choose.MAX_SHARING",
        "unit/allocator/test_sharing.py::test_more_services_than_may_share_an_eip_get_another_one",
    ),
    "Services that an Announcement names": (
        "agent.record.MAX_SERVICES",
        "unit/agent/test_record.py::test_more_services_than_a_status_takes_are_left_out_and_that_is_no_mistake",
    ),
    "characters of a column with Services or addresses": (
        "api.kinds.MAX_LINE",
        "unit/controller/test_wanted_writes.py::test_a_column_has_an_end_whatever_somebody_wrote_into_a_pool",
    ),
    "term of a claim, an intent, a record": (
        "model.MAX_TERM",
        "unit/ownership/test_bounds.py::test_after_the_highest_term_there_is_still_a_holder_whose_hellos_every_peer_reads",
    ),
    "bytes of a node's name": (
        "ownership.hellos.layout.MAX_NAME",
        "unit/ownership/hellos/test_hello_frames.py::test_a_section_that_breaks_the_format_is_malformed",
    ),
    "API servers that `control-plane` is told of": (
        "tools.control_plane.site.MAX_SERVERS",
        "unit/tools/control_plane/test_control_plane.py::test_addresses_that_cannot_work_are_refused_with_the_rule",
    ),
    "bytes of a frame that `capture` reads": (
        "tools.capture.neighbourhood.MAX_FRAME",
        "unit/tools/capture/test_sentences.py::test_a_frame_longer_than_any_link_carries_is_passed_over",
    ),
    "living peers on one link": (
        "ownership.machine.peers.MAX_NODES",
        "unit/ownership/test_bounds.py::test_names_without_end_are_not_remembered_and_whom_we_know_is_still_heard",
    ),
    "senders of hellos remembered on one link": (
        "ownership.hellos.hellos.MAX_SENDERS",
        "unit/ownership/test_bounds.py::test_senders_without_end_are_not_remembered",
    ),
    "EIPs known at all": (
        "ownership.machine.hearing.MAX_EIPS",
        "unit/ownership/test_bounds.py::test_eips_without_end_are_not_remembered_and_those_we_know_are_still_claimed",
    ),
    "EIPs and addresses that all peers on one link name, together": (
        "ownership.machine.hearing.MAX_SAID",
        "unit/ownership/test_bounds.py::test_what_many_say_of_ever_more_eips_has_an_end_and_the_first_is_still_heard",
    ),
    "terms of a `nodePreference`": (
        "api.eip.MAX_PREFERENCES",
        "unit/standalone/test_bad_manifests.py::test_a_preference_of_too_many_terms_is_refused",
    ),
    "preferences of the EIPs on one link that a node is preferred by": (
        "ownership.machine.peers.MAX_WEIGHTS",
        "unit/ownership/machine/test_preferred.py::"
        "test_of_too_many_preferences_hellos_say_those_with_the_lowest_numbers_and_no_other_is_heeded",
    ),
    "EIPs that a peer gave up, according to another link": (
        "ownership.machine.peers.MAX_LEFT",
        "unit/ownership/test_bounds.py::test_of_what_a_peer_let_go_on_another_link_the_latest_is_remembered",
    ),
    "speakers that `--hand-over` remembers": (
        "node.handover.MAX_SPEAKERS",
        "unit/node/test_handover.py::test_speakers_without_end_are_not_remembered_and_whoever_spoke_last_is",
    ),
    "silent nodes remembered for the metrics": (
        "node.standing.MAX_DEAD",
        "unit/node/test_counted.py::test_a_node_is_dead_once_it_is_heard_on_no_link_and_the_dead_have_a_bound",
    ),
    "seconds between two reactions to a conflict over one EIP": (
        "layer2.holdings.DEFEND_INTERVAL",
        "unit/layer2/test_disputes.py::test_no_flood_makes_it_act_more_often_and_none_keeps_it_quiet",
    ),
    "probes a second for EIPs that somebody else answers for": (
        "layer2.holdings.ASKED_A_SECOND",
        "unit/layer2/test_probe.py::test_of_thousands_that_another_answers_for_no_more_are_asked_for_than_a_lan_bears",
    ),
    "addresses asked for on a link, in one second of listening": (
        "ownership.inquirer.MAX_ASKED",
        "netns/ownership/test_inquiries.py::test_of_addresses_without_end_those_asked_for_last_are_told_of",
    ),
    "frames read from each of an inquiry's two sockets in 20 ms": (
        "ownership.inquirer.FRAMES",
        "netns/ownership/test_inquiries.py::test_a_flood_is_heard_a_few_frames_at_a_time",
    ),
    "log lines waiting for a reader or a disk": (
        "telemetry.logs.MAX_WAITING",
        "unit/telemetry/test_logs.py::test_a_reader_that_stalls_holds_up_nobody_and_what_was_lost_is_told",
    ),
}
"""What a row is about: the limit in ``speaker.``, and the test of what is beyond it."""
LIMIT = re.compile(r"^(_?MAX_[A-Z_]+)(?:: [\w\[\]]+)? = ", re.MULTILINE)
ELSEWHERE = {
    # A bound on what a field may say, not on how much there may be: named in messages, and in the CRDs.
    "api.eip.MAX_BURST",
    "api.eip.MAX_WEIGHT",
    "convert.keepalived.site._MAX_PERSISTENCE",
    # Of the operator's own file, which one command reads once: the message names them (docs/migration/keepalived.md).
    "convert.keepalived.site.MAX_SERVICES",
    "convert.keepalived.text.MAX_LINE",
    "convert.keepalived.text.MAX_LINES",
    "convert.keepalived.text.MAX_NESTED",
    "convert.keepalived.text.MAX_STEPS",
    # Numbers of a format: what travels is cut to them.
    "ownership.hello.MAX_AGE",
    "ownership.hello.MAX_INCARNATION",
    # Of files that the speaker or the kubelet wrote: what is there instead, a device say, is not read without end.
    "cluster.access.MAX_FILE",
    "forwarding.ipvs.settings._MAX_BYTES",
    "standalone.state.MAX_BYTES",
    "tools.connections.MAX_STATUS",
    # Of another program on this host's loopback.
    "kubeproxy.words.MAX_BODY",
}


def limits_in_the_code():
    for file in (ROOT / "speaker").rglob("*.py"):
        name = ".".join(file.relative_to(ROOT / "speaker").with_suffix("").parts).removesuffix(".__init__")
        if not name.startswith("lab."):
            yield from (f"{name}.{limit}" for limit in LIMIT.findall(file.read_text()))


@pytest.mark.parametrize(("what", "bound", "beyond"), LISTED, ids=[row[0] for row in LISTED])
def test_a_row_says_what_the_code_says_and_its_test_is_there(what, bound, beyond):
    where, test = CODE[what]
    assert beyond
    module, name = where.rsplit(".", 1)
    constant = getattr(importlib.import_module(module if module == "crds" else f"speaker.{module}"), name)
    assert float(bound.split(",")[0]) == constant
    file, test_name = test.split("::")
    assert re.search(rf"^(async )?def {test_name}\(", (ROOT / "tests" / file).read_text(), re.MULTILINE)


def test_every_limit_of_the_code_has_a_row():
    assert CODE.keys() == {row[0] for row in LISTED}
    assert set(limits_in_the_code()) - ELSEWHERE - {where for where, _ in CODE.values()} == set()
