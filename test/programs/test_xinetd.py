"""xinetd: services of its own, which it forks for, and programs whose standard input and output are the connection: one that loads the library,
and a static one, which gets it through a bridge."""

import getpass

import harness

CONFIGURATION = """
defaults
{{
  instances = 50
  cps = 1000 1
  log_type = FILE /dev/null
}}
service echo
{{
  type = INTERNAL UNLISTED
  id = echo-stream
  socket_type = stream
  protocol = tcp
  user = {user}
  wait = no
  bind = 127.0.0.1
  port = {echo}
}}
service cat
{{
  type = UNLISTED
  socket_type = stream
  protocol = tcp
  user = {user}
  wait = no
  bind = 127.0.0.1
  port = {cat}
  server = /bin/cat
}}
service static-cat
{{
  type = UNLISTED
  socket_type = stream
  protocol = tcp
  user = {user}
  wait = no
  bind = 127.0.0.1
  port = {static_cat}
  server = {busybox}
  server_args = cat
}}
"""


class Xinetd(harness.ProgramTest):
    def setUp(self):
        harness.need("xinetd", "busybox")
        super().setUp()

    def use(self, service, ends):
        ports = {name: harness.free_port() for name in ("echo", "cat", "static_cat")}
        configuration = self.world.directory / f"xinetd-{ports['echo']}.conf"
        configuration.write_text(CONFIGURATION.format(user=getpass.getuser(), busybox=harness.find("busybox"), **ports))
        server = self.world.start(["xinetd", "-dontfork", "-f", configuration, "-pidfile", self.world.directory / "xinetd.pid"],
                                  preload=ends.server)
        self.world.wait_for_listener(ports[service], sdp=ends.server)
        for sizes in (b"1\n100000\n3\n", b"2000000\n"):
            answer = self.world.run_peer("echo-client", ports[service], preload=ends.client, data=sizes)
            self.assertEqual(answer.count(b"ok"), sizes.count(b"\n"))
        self.assert_carried(ports[service], ends, at_least=2)
        server.stop()

    def test_a_service_of_its_own(self):
        for ends in harness.BOTH_AND_EACH_ALONE:
            with self.subTest(str(ends)):
                self.use("echo", ends)

    def test_a_program_as_service(self):
        for ends in harness.BOTH_AND_EACH_ALONE:
            with self.subTest(str(ends)):
                self.use("cat", ends)

    def test_a_static_program_as_service(self):
        for ends in harness.BOTH_AND_EACH_ALONE:
            with self.subTest(str(ends)):
                self.use("static_cat", ends)


if __name__ == "__main__":
    harness.main()
