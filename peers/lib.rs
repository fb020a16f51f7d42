//! Other people's servers and clients, for our tests: where `hack/peers` put them, how they are started and stopped.
