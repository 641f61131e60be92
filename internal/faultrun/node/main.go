// Node is one process of a fault run. It is told what to do by its environment.
package main

import "github.com/outboxkit/outbox-go/internal/faultrun"

func main() { faultrun.Main() }
