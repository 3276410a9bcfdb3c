//go:build pins

// Package kueue names Kueue, whose version go.mod holds; it brings its own client libraries of Kubernetes.
package kueue

import _ "sigs.k8s.io/kueue/cmd/kueue"
