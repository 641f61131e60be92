//go:build race

package browsertest

// slowdown is what the race detector costs the server.
const slowdown = 3
