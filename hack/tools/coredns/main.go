// CoreDNS with the plugins that the local cluster's configuration names, in hack/lib/node.sh. With all that it comes with it
// would be four times as many packages to compile, those of several clouds among them.
package main

import (
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/template"
)

func main() {
	coremain.Run()
}
