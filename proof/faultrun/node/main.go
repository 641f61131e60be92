// Node is one process of a fault run. It is told what to do by its environment.
package main

import "github.com/outboxkit/outbox-go/proof/faultrun"

func main() { faultrun.Main() }
