//go:build pins

// Package volcano names Volcano's programs, whose version go.mod holds; it brings its own client libraries of Kubernetes.
package volcano

import (
	_ "volcano.sh/volcano/cmd/controller-manager"
	_ "volcano.sh/volcano/cmd/scheduler"
	_ "volcano.sh/volcano/cmd/webhook-manager"
)
