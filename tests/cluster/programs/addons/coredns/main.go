// CoreDNS with the plugins of conf/Corefile and no others: the released program links the libraries of three clouds.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/template"
)

func main() {
	// A query goes through the plugins in this order.
	dnsserver.Directives = []string{"bind", "errors", "kubernetes", "template"}
	coremain.Run()
}
