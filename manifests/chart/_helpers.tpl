{{/* An image's reference, of the values for both and those of one. A tag of one counts against a digest for both. */}}
{{- define "eip-speaker.image" -}}
{{- $own := index . 1 | default dict -}}
{{- $image := mergeOverwrite (deepCopy (index . 0)) $own -}}
{{- if and $own.tag (not $own.digest) }}{{ $_ := set $image "digest" "" }}{{ end -}}
{{- with $image.registry }}{{ . }}/{{ end }}{{ $image.repository }}
{{- with $image.tag }}:{{ . }}{{ end }}
{{- with $image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* The API server's ports, which the controller's NetworkPolicy lets out. */}}
{{- define "eip-speaker.ports" -}}
{{- range .Values.networkPolicy.apiPorts }}
- port: {{ int . }}
  protocol: TCP
{{- end }}
{{- end }}
