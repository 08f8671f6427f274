from mqtt_manifests import EIP, manifests
def test_try(lan, new_broker, start, write):
    node, _ = lan
    broker = new_broker(node)
    broker.start()
    watcher = broker.watch("eip-speaker/#")
    write("a.yaml", manifests(EIP))
    speaker = start(node, "--mqtt", "mqtt://127.0.0.1", "--forwarder", "none" if False else "auto")
    speaker.until("ready")
    watcher.until(lambda states: f"eip-speaker/v1/nodes/n1/eips/{EIP}" in states)
    print(watcher.heard)
    import json
    print(json.dumps(broker.retained("eip-speaker/#"), indent=1))
    print(speaker.stop())
    print(speaker.log)
    print(broker.retained("eip-speaker/#"))
    assert 0
