// The kinds by which Gateways and meshes are told where requests go, for tests: the definitions of the Gateway API and of Istio, which
// are files of these modules. Nothing is compiled.
module slipway.dev/gateway

go 1.26.4

require (
	istio.io/api v1.32.0
	sigs.k8s.io/gateway-api v1.6.3
)
