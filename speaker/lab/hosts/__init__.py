"""What runs on the lab's hosts: speakers, backends, and the manifests they are given."""
