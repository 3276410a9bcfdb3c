{{- define "dsj.chart" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "dsj.name" -}}
{{- $chart := include "dsj.chart" . }}
{{- $own := ternary .Release.Name (printf "%s-%s" .Release.Name $chart) (contains $chart .Release.Name) }}
{{- .Values.fullnameOverride | default $own | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "dsj.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "dsj.name" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{- define "dsj.selector" -}}
app.kubernetes.io/name: {{ include "dsj.chart" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{/* A version may contain a +, such as before the digest that Flux appends; a label must not. */}}
{{- define "dsj.labelValue" -}}
{{- . | replace "+" "_" | trunc 63 | trimSuffix "-" | trimSuffix "_" | trimSuffix "." }}
{{- end }}

{{- define "dsj.labels" -}}
{{ include "dsj.selector" . }}
app.kubernetes.io/version: {{ include "dsj.labelValue" .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ include "dsj.labelValue" (printf "%s-%s" .Chart.Name .Chart.Version) | quote }}
{{- range $name, $value := omit .Values.commonLabels "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end }}

{{- define "dsj.image" -}}
{{- if .image.digest }}{{ .image.repository }}@{{ .image.digest }}{{ else }}{{ .image.repository }}:{{ .image.tag | default .version }}{{ end }}
{{- end }}

{{/* Not empty if the operator has cluster-wide rights. */}}
{{- define "dsj.clusterRoles" -}}
{{- if kindIs "bool" .Values.rbac.clusterRoles | ternary .Values.rbac.clusterRoles (eq .Values.rbac.scope "Cluster") }}yes{{ end }}
{{- end }}

{{/* Not empty if the operator reads Nodes. */}}
{{- define "dsj.readNodes" -}}
{{- if and .Values.rbac.readNodes (include "dsj.clusterRoles" .) }}yes{{ end }}
{{- end }}

{{/* Limits a policy to the namespaces of this release's jobs, so that it does not affect other releases. */}}
{{- define "dsj.policyPlace" -}}
{{- with .Values.watchNamespaces -}}
matchResources:
  namespaceSelector:
    matchExpressions:
      - {key: kubernetes.io/metadata.name, operator: In, values: {{ toJson . }}}
{{- end }}
{{- end }}

{{/* Not empty if there is a webhook. */}}
{{- define "dsj.webhook" -}}
{{- if and .Values.webhook.enabled (eq .Values.rbac.scope "Cluster") }}yes{{ end }}
{{- end }}

{{/* Not empty if cert-manager issues the webhook's certificate. */}}
{{- define "dsj.certManager" -}}
{{- if and (include "dsj.webhook" .) .Values.webhook.certManager.enabled }}yes{{ end }}
{{- end }}

{{/* The operator's rights in the namespaces of its jobs. It has every right that it grants to worker 0, so it needs
neither `escalate` nor `bind`. It cannot read Secrets, and has no pods/exec. */}}
{{- define "dsj.rules" -}}
- apiGroups: [training.dsj.dev]
  resources: [deepspeedjobs]
  verbs: [get, list, watch]
- apiGroups: [training.dsj.dev]
  resources: [deepspeedjobs/status]
  verbs: [get, patch]
- apiGroups: [training.dsj.dev]  # for blockOwnerDeletion in the owner references of children
  resources: [deepspeedjobs/finalizers]
  verbs: [update]
- apiGroups: [training.dsj.dev]  # spec.ttlSecondsAfterFinished
  resources: [deepspeedjobs]
  verbs: [delete]
- apiGroups: [""]
  resources: [pods, services, configmaps, serviceaccounts]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]  # the keys; they are never read, and keyPolicy refuses all other Secrets
  resources: [secrets]
  verbs: [create, delete]
- apiGroups: [keys.training.dsj.dev]  # a virtual resource: keyPolicy checks this right to decide whose pods may have keys
  resources: [workers]
  verbs: [create]
- apiGroups: [""]  # repairs manual changes
  resources: [services]
  verbs: [update]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, list, watch, create, update, delete]
{{- if .Values.networkPolicy.jobs }}
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, update, delete]
{{- end }}
{{- if .Values.scheduling.volcano }}
- apiGroups: [scheduling.volcano.sh]
  resources: [podgroups]
  verbs: [get, list, watch, create, delete]
{{- end }}
{{- if .Values.scheduling.kueue }}
- apiGroups: [""]  # marks pods so that Kueue ends their group
  resources: [pods]
  verbs: [patch]
{{- end }}
- apiGroups: [events.k8s.io]  # list: to find out why a pod has a node but no container
  resources: [events]
  verbs: [list, create]
{{- end }}
