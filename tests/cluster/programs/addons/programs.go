//go:build pins

// Package addons names helm, whose version go.mod holds. It is a module of its own because helm's dependencies would move
// those of Kubernetes.
package addons

import _ "helm.sh/helm/v3/cmd/helm"
