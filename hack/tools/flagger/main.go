// Flagger, for tests: its own packages, put together as its cmd/flagger does for one replica and the provider kubernetes.
//
// The newest Flagger that is to be had as a Go module is bound to Kubernetes' libraries 1.27, which do not know the field
// lifecycle.preStop.sleep of agents' pods: it would write their Deployments without it, which the API server refuses. Its later
// releases, 1.38 and on, are bound to 1.30 and newer, as this module is; its own main names a lock that these no longer have.
package main

import (
	"flag"
	"os"
	"time"

	"github.com/fluxcd/flagger/pkg/canary"
	clientset "github.com/fluxcd/flagger/pkg/client/clientset/versioned"
	informers "github.com/fluxcd/flagger/pkg/client/informers/externalversions"
	"github.com/fluxcd/flagger/pkg/controller"
	"github.com/fluxcd/flagger/pkg/logger"
	"github.com/fluxcd/flagger/pkg/metrics/observers"
	"github.com/fluxcd/flagger/pkg/notifier"
	"github.com/fluxcd/flagger/pkg/router"
	"github.com/fluxcd/flagger/pkg/server"
	"github.com/fluxcd/flagger/pkg/signals"
	"go.uber.org/zap"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// As Flagger's own main has them by default.
const (
	selector      = "app.kubernetes.io/name"
	provider      = "kubernetes"
	metricsServer = "http://prometheus:9090"
	qps, burst    = 100, 250
	resync        = 30 * time.Second
)

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "the cluster")
	namespace := flag.String("namespace", "", "whose Canaries it looks after")
	interval := flag.Duration("control-loop-interval", 10*time.Second, "how often it looks for Canaries")
	port := flag.String("port", "8080", "where it answers /healthz")
	flag.Parse()
	log, err := logger.NewLoggerWithEncoding("info", "console")
	if err == nil {
		err = run(log, *kubeconfig, *namespace, *port, *interval)
	}
	if err != nil {
		os.Stderr.WriteString("error: " + err.Error() + "\n")
		os.Exit(1)
	}
}

func run(log *zap.SugaredLogger, kubeconfig, namespace, port string, interval time.Duration) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = qps, burst
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	own, err := clientset.NewForConfig(config)
	if err != nil {
		return err
	}
	observe, err := observers.NewFactory(metricsServer)
	if err != nil {
		return err
	}
	stop := signals.SetupSignalHandler()
	tracker := &canary.ConfigTracker{Logger: log, KubeClient: kube, FlaggerClient: own}
	// No label is copied, as by default.
	canaries := canary.NewFactory(kube, own, tracker, []string{selector}, []string{""}, log)
	routers := router.NewFactory(config, kube, own, "", "", log, own, true)
	flagger := controller.NewController(kube, own, watch(own, namespace, stop), interval, log, &notifier.NopNotifier{},
		canaries, routers, observe, provider, "test", "", "", false)
	go server.ListenAndServe(port, 3*time.Second, log, stop)
	return flagger.Run(2, stop)
}

func watch(own clientset.Interface, namespace string, stop <-chan struct{}) controller.Informers {
	of := informers.NewSharedInformerFactoryWithOptions(own, resync, informers.WithNamespace(namespace)).Flagger().V1beta1()
	found := controller.Informers{CanaryInformer: of.Canaries(), MetricInformer: of.MetricTemplates(), AlertInformer: of.AlertProviders()}
	for _, informer := range []cache.SharedIndexInformer{
		found.CanaryInformer.Informer(), found.MetricInformer.Informer(), found.AlertInformer.Informer(),
	} {
		go informer.Run(stop)
		cache.WaitForNamedCacheSync("flagger", stop, informer.HasSynced)
	}
	return found
}
