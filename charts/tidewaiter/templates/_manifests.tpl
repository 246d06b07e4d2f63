{{/*
Manifests of a folder of files/, which make copies from config/, in the namespace of the release. They hold no template: what
differs by a value is put in by the template that includes them.
*/}}
{{- define "tidewaiter.manifests" -}}
{{- range $path, $_ := .root.Files.Glob (printf "files/%s/*.yaml" .folder) }}
---
{{ $.root.Files.Get $path | trimPrefix "---\n" | replace "tidewaiter-system" $.root.Release.Namespace }}
{{- end }}
{{- end }}

{{/* Name of the Secret with a certificate that is not the manager's own; empty if it is. */}}
{{- define "tidewaiter.certificateSecret" -}}
{{- if eq .Values.webhook.certificate.from "CertManager" }}tidewaiter-webhook-certificate
{{- else if eq .Values.webhook.certificate.from "Secret" }}{{ .Values.webhook.certificate.secretName }}
{{- end }}
{{- end }}

{{/* An image with its digest, or with its tag, or with the version of the app. */}}
{{- define "tidewaiter.image" -}}
{{ .image.repository }}{{ if .image.digest }}@{{ .image.digest }}{{ else }}:{{ .image.tag | default .root.Chart.AppVersion }}{{ end }}
{{- end }}

{{/* Quantities by resource, as a flag of the manager has them. */}}
{{- define "tidewaiter.quantities" -}}
{{- $all := list }}
{{- range $resource, $quantity := . }}{{ $all = append $all (printf "%s=%v" $resource $quantity) }}{{ end }}
{{- join "," $all }}
{{- end }}
