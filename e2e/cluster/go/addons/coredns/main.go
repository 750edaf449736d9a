// Command coredns is CoreDNS with the plugins that a cluster's DNS needs and no others: the stock program's forty bring in the client
// libraries of every cloud, which take longer to compile than Kubernetes.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
)

func main() {
	// The order in which a query passes the plugins.
	dnsserver.Directives = []string{"reload", "errors", "health", "ready", "loadbalance", "cache", "kubernetes", "forward"}
	coremain.Run()
}
