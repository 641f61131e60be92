//go:build !race

package browsertest

const slowdown = 1
