"""Events over MQTT: retained states and passing events, published to a broker (docs/mqtt.md). Nothing it says is
obeyed.

Pure are ``topics``, ``states``, ``events`` and ``outbox``; ``connection`` and ``publisher`` are the edge.
"""
