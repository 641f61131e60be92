// Package relaytest proves a publisher of package relay with a real broker: [Prove] lets two nodes
// deliver while the broker is killed and connections are cut, and checks the broker's messages in
// the end. [Outage] lets the broker be away for a minute.
package relaytest
