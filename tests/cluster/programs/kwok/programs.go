//go:build pins

// Package kwok names kwok, whose version go.mod holds; its client library is newer than that of the other programs.
package kwok

import _ "sigs.k8s.io/kwok/cmd/kwok"
