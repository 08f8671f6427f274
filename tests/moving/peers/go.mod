// Other load balancers, as published modules: moved from and back to.
module eip-speaker.io/moving/peers

go 1.26.0

tool (
	go.universe.tf/metallb/controller
	go.universe.tf/metallb/speaker
)

require go.universe.tf/metallb v0.16.2
