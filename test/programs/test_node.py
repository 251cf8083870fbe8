"""node's http server and client (libuv): large bodies both ways, and many requests over kept and over new
connections."""

import harness

SERVER = """
const crypto = require('crypto'), http = require('http');
http.createServer((request, response) => {
  const hash = crypto.createHash('sha256');
  const pieces = [];
  request.on('data', data => { hash.update(data); pieces.push(data); });
  request.on('end', () => {
    response.setHeader('x-hash', hash.digest('hex'));
    for (const piece of pieces) response.write(piece);
    response.end();
  });
}).listen(+process.argv[1], '127.0.0.1');
"""

CLIENT = """
const crypto = require('crypto'), http = require('http');
const hash = data => crypto.createHash('sha256').update(data).digest('hex');
function exchange(agent, body) {
  return new Promise((resolve, reject) => {
    const where = {host: '127.0.0.1', port: +process.argv[1], method: 'POST', agent};
    const request = http.request(where, response => {
      const got = [];
      response.on('data', data => got.push(data));
      response.on('error', reject);
      response.on('end', () => {
        const whole = Buffer.concat(got);
        if (response.headers['x-hash'] !== hash(body) || hash(whole) !== hash(body))
          reject(new Error('a body differs'));
        else resolve();
      });
    });
    request.on('error', reject);
    request.end(body);
  });
}
(async () => {
  const kept = new http.Agent({keepAlive: true, maxSockets: 10}), fresh = new http.Agent({keepAlive: false});
  await Promise.all([1, 2, 3].map(i => exchange(kept, crypto.randomBytes(i * 5000000))));
  for (let round = 0; round < 20; ++round) {
    await Promise.all([...Array(10).keys()].map(i => exchange(kept, crypto.randomBytes(i * 1000))));
    await Promise.all([...Array(5).keys()].map(i => exchange(fresh, crypto.randomBytes(i * 1000))));
  }
  kept.destroy();
  console.log('ok');
})();
"""


# Each connection is handed to one of two children, in a message.
HANDS_ON = """
const child_process = require('child_process'), net = require('net');
if (process.argv[2] === 'child') {
  process.on('message', (message, socket) => {
    socket.on('data', data => socket.write(data));
    socket.on('end', () => socket.end());
    socket.resume();
  });
} else {
  const children = [0, 1].map(() => child_process.fork(__filename, ['child']));
  let next = 0;
  const pass = socket => children[next++ % 2].send('take it', socket);
  net.createServer({pauseOnConnect: true, allowHalfOpen: true}, pass).listen(+process.argv[2], '127.0.0.1');
}
"""


class Node(harness.ProgramTest):
    def setUp(self):
        harness.need("node")
        super().setUp()

    def test_connections_are_handed_to_children(self):
        program = self.world.directory / "hands-on.js"
        program.write_text(HANDS_ON)
        for ends in harness.BOTH_AND_EACH_ALONE:
            with self.subTest(str(ends)):
                port = harness.free_port()
                server = self.world.start(["node", program, port], preload=ends.server)
                self.world.wait_for_listener(port, sdp=ends.server)
                for _ in range(12):
                    self.assertEqual(
                        self.world.run_peer(
                            "echo-client", port, preload=ends.client, data=b"10\n200000\n"
                        ).count(b"ok"),
                        2,
                    )
                self.assert_carried(port, ends, at_least=12)
                server.stop()

    def test_http(self):
        for ends in harness.BOTH_AND_EACH_ALONE:
            with self.subTest(str(ends)):
                port = harness.free_port()
                server = self.world.start(["node", "-e", SERVER, "--", port], preload=ends.server)
                self.world.wait_for_listener(port, sdp=ends.server)
                answer = self.world.run(["node", "-e", CLIENT, "--", port], preload=ends.client)
                self.assertEqual(answer, b"ok\n")
                self.assert_carried(port, ends, at_least=103)
                server.stop()


if __name__ == "__main__":
    harness.main()
