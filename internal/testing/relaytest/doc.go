// Package relaytest proves a publisher of package relay with a real broker: [Prove] lets
// two nodes deliver while the broker is killed and connections are cut, and looks at what
// the broker has in the end. [Outage] lets the broker be away for a minute.
package relaytest
