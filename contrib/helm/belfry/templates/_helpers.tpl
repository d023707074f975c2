{{- define "belfry.name" -}}
{{- if .Values.nameOverride }}{{ .Values.nameOverride }}
{{- else if contains "belfry" .Release.Name }}{{ .Release.Name }}
{{- else }}{{ .Release.Name }}-belfry
{{- end -}}
{{- end -}}

{{- define "belfry.selector" -}}
app.kubernetes.io/name: belfry
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The labels of a part: list $ "daemon". */}}
{{- define "belfry.labels" -}}
{{- $root := index . 0 -}}
{{ include "belfry.selector" $root }}
app.kubernetes.io/component: {{ index . 1 }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* belfry's configuration: .Values.config with the settings of the chart. */}}
{{- define "belfry.config" -}}
{{- $grace := printf "%ds" (int .Values.gracePeriodSeconds) -}}
{{- $set := dict "metrics" (dict "listen" (printf ":%d" (int .Values.metrics.port)))
  "runner" (dict "grace_period" $grace) "delivery" (dict "grace_period" $grace) -}}
{{- if .Values.api.enabled -}}
{{- $api := .Values.config.api | default dict -}}
{{- if not (or $api.tls $api.proxy) }}{{ fail "api.enabled: set config.api.tls or config.api.proxy, because the API is reachable from other pods" }}{{ end -}}
{{- $_ := set $set "api" (dict "listen" (printf ":%d" (int .Values.api.port))) -}}
{{- end -}}
{{- if .Values.inbox.enabled -}}
{{- $inbox := .Values.config.inbox | default dict -}}
{{- if not (or $inbox.tls $inbox.proxies) }}{{ fail "inbox.enabled: set config.inbox.tls or config.inbox.proxies, because the notification centre is reachable from other pods" }}{{ end -}}
{{- $_ := set $set "inbox" (dict "listen" (printf ":%d" (int .Values.inbox.port))) -}}
{{- end -}}
{{ toYaml (mergeOverwrite (dict "log" (dict "format" "json")) (deepCopy .Values.config) $set) }}
{{- end -}}

{{/* The database of a part: its own url and files, or the common ones. */}}
{{- define "belfry.database" -}}
{{- $root := index . 0 -}}
{{- $own := index . 1 -}}
{{ toJson (dict "url" ($own.url | default $root.Values.database.url) "files" ($own.files | default $root.Values.database.files)) }}
{{- end -}}

{{/* 90 % of a memory limit in Mi or Gi, for Go's collector; empty without such a limit. */}}
{{- define "belfry.memory" -}}
{{- $limit := dig "limits" "memory" "" . | toString -}}
{{- if regexMatch "^[0-9]+Mi$" $limit }}{{ div (mul (trimSuffix "Mi" $limit | int) 9) 10 }}MiB
{{- else if regexMatch "^[0-9]+Gi$" $limit }}{{ div (mul (trimSuffix "Gi" $limit | int) 9216) 10 }}MiB
{{- end -}}
{{- end -}}

{{/*
The spec of a pod, from a dict: root, part (its name), values (of the part), args, restart,
stays (it has probes and ports), serves (it has the ports of the API), own (the name of a ConfigMap).
*/}}
{{- define "belfry.pod" -}}
{{- $v := .root.Values -}}
{{- $database := include "belfry.database" (list .root (.values.database | default dict)) | fromJson -}}
{{- $files := $database.files | default list -}}
{{- $whole := ne .part "migrate" -}}
automountServiceAccountToken: false
enableServiceLinks: false # BELFRY_PORT and its kind are no settings: belfry would reject them
{{- with $v.pod.serviceAccountName }}
serviceAccountName: {{ . }}
{{- end }}
{{- with $v.pod.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $v.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.pod.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.pod.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.pod.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .restart }}
restartPolicy: {{ . }}
{{- end }}
{{- if .stays }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "belfry.selector" .root | nindent 8 }}
        app.kubernetes.io/component: {{ .part }}
{{- end }}
terminationGracePeriodSeconds: {{ add (int $v.gracePeriodSeconds) 55 }}
securityContext:
  runAsNonRoot: true
  {{- if $v.pod.runAsUser }}
  runAsUser: {{ int $v.pod.runAsUser }}
  runAsGroup: {{ int $v.pod.runAsUser }}
  fsGroup: {{ int $v.pod.runAsUser }}
  fsGroupChangePolicy: OnRootMismatch
  {{- end }}
  seccompProfile: {type: RuntimeDefault}
containers:
  - name: belfry
    image: {{ printf "%s%s" $v.image.repository (ternary (printf "@%s" $v.image.digest) (printf ":%s" ($v.image.tag | default .root.Chart.AppVersion)) (ne $v.image.digest "")) | quote }}
    imagePullPolicy: {{ $v.image.pullPolicy }}
    args:
      {{- range .args }}
      - {{ . | quote }}
      {{- end }}
      {{- if and $whole $v.configSecrets }}
      - --config=/etc/belfry/config/belfry.yaml
      {{- range $i, $secret := $v.configSecrets }}
      - {{ printf "--config=/etc/belfry/config-secrets/%d/%s" $i $secret.key | quote }}
      {{- end }}
      {{- end }}
    env:
      - {name: BELFRY_CONFIG, value: /etc/belfry/config/belfry.yaml}
      - name: BELFRY_DATABASE_URL
        value: {{ $database.url | quote }}
      {{- range $files }}
      {{- if eq (.path | default .key) "pgpass" }}
      - {name: PGPASSFILE, value: /etc/belfry/database/pgpass}
      {{- end }}
      {{- end }}
      {{- with include "belfry.memory" (.values.resources | default dict) }}
      - {name: GOMEMLIMIT, value: {{ . }}}
      {{- end }}
    {{- with .values.resources }}
    resources: {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    {{- if .stays }}
    ports:
      - {name: metrics, containerPort: {{ int $v.metrics.port }}}
      {{- if and .serves $v.api.enabled }}
      - {name: api, containerPort: {{ int $v.api.port }}}
      {{- end }}
      {{- if and .serves $v.inbox.enabled }}
      - {name: inbox, containerPort: {{ int $v.inbox.port }}}
      {{- end }}
    startupProbe: # of a start that waits for the database
      httpGet: {path: /livez, port: metrics}
      periodSeconds: 2
      timeoutSeconds: 5
      failureThreshold: 60
    livenessProbe: # fails after a loop has ended, not while the database is down
      httpGet: {path: /livez, port: metrics}
      periodSeconds: 10
      timeoutSeconds: 5
      failureThreshold: 3
    readinessProbe:
      httpGet: {path: /readyz, port: metrics}
      periodSeconds: 5
      timeoutSeconds: 5
      failureThreshold: 2
    {{- if and .serves (or $v.api.enabled $v.inbox.enabled) }}
    lifecycle: # until the Service has removed this pod
      preStop:
        sleep: {seconds: 5}
    {{- end }}
    {{- end }}
    volumeMounts:
      - {name: config, mountPath: /etc/belfry/config, readOnly: true}
      {{- if $files }}
      - {name: database, mountPath: /etc/belfry/database, readOnly: true}
      {{- end }}
      {{- if $whole }}
      {{- range $i, $secret := $v.configSecrets }}
      - {name: config-secret-{{ $i }}, mountPath: /etc/belfry/config-secrets/{{ $i }}, readOnly: true}
      {{- end }}
      {{- range $name, $secret := $v.secrets }}
      - {name: secret-{{ $name }}, mountPath: /etc/belfry/secrets/{{ $name }}, readOnly: true}
      {{- end }}
      {{- end }}
volumes:
  - name: config
    configMap:
      name: {{ .own | default (include "belfry.name" .root) }}
  {{- if $files }}
  - name: database
    projected:
      defaultMode: 0400
      sources:
        {{- range $files }}
        - secret:
            name: {{ .secret }}
            items: [{key: {{ .key | quote }}, path: {{ .path | default .key | quote }}}]
        {{- end }}
  {{- end }}
  {{- if $whole }}
  {{- range $i, $secret := $v.configSecrets }}
  - name: config-secret-{{ $i }}
    secret:
      secretName: {{ $secret.secret }}
      defaultMode: 0400
      items: [{key: {{ $secret.key | quote }}, path: {{ $secret.key | quote }}}]
  {{- end }}
  {{- range $name, $secret := $v.secrets }}
  - name: secret-{{ $name }}
    secret: {secretName: {{ $secret }}, defaultMode: 0400}
  {{- end }}
  {{- end }}
{{- end -}}

{{/* The labels and annotations of a pod of a part: list $ "daemon". */}}
{{- define "belfry.podMetadata" -}}
{{- $root := index . 0 -}}
labels:
  {{- include "belfry.labels" . | nindent 2 }}
  {{- with $root.Values.pod.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  checksum/config: {{ include "belfry.config" $root | sha256sum }}
  {{- with $root.Values.pod.annotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
