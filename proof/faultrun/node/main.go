// Node is a process of a fault run. The environment says what the process does.
package main

import "github.com/outboxkit/outbox-go/proof/faultrun"

func main() { faultrun.Main() }
