package faultrun

import "fmt"

// via makes the way to write of an adapter.
func (n *node) via(adapter string) writes {
	switch adapter {
	case "sqltx":
		return viaSQL{n}
	case "raw":
		return viaRaw{n}
	case "bun":
		return newViaBun(n)
	case "gorm":
		return newViaGORM(n)
	case "pgx", "pgx-batch":
		return newViaPGX(n, adapter == "pgx-batch")
	default:
		panic(fmt.Sprintf("faultrun: there is no adapter %q", adapter))
	}
}
