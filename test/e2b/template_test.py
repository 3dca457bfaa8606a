"""Templates that E2B's SDK for Python builds, in both forms, against a server of this tree."""

import inspect
import os
import tempfile
import unittest
import urllib.error
import urllib.request
import uuid

from e2b import (
    AsyncSandbox, AsyncTemplate, BuildException, Sandbox, SandboxException, Template, TemplateException, default_build_logger, wait_for_file, wait_for_port,
)

import suite


async def did(value):
    """Return what a call gives, in either form of it."""
    return await value if inspect.isawaitable(value) else value


def forget(name):
    url, key = os.environ["E2B_API_URL"], os.environ["E2B_API_KEY"]
    try:
        urllib.request.urlopen(urllib.request.Request(f"{url}/templates/{name}", method="DELETE", headers={"X-API-Key": key}))
    except urllib.error.HTTPError as e:
        if e.code != 404:
            raise


class Templates(unittest.IsolatedAsyncioTestCase):
    forms = ((Template, Sandbox), (AsyncTemplate, AsyncSandbox))

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        os.makedirs(os.path.join(self.folder.name, "app", "lib"))
        for name, text in (("app/main.py", "import lib.one\n"), ("app/lib/one.py", "print('one')\n"), ("notes.txt", "notes\n"), ("secret.key", "no\n")):
            with open(os.path.join(self.folder.name, name), "w") as f:
                f.write(text)

    def named(self):
        """Return a name for a template, which is removed at the end."""
        name = "t" + uuid.uuid4().hex[:12]
        self.addCleanup(forget, name)
        return name

    def recipe(self, template):
        return (
            template(file_context_path=self.folder.name, file_ignore_patterns=["*.key"])
            .from_template("base")
            .set_envs({"GREETING": 'say "hello"'})
            .run_cmd("echo $GREETING >/home/user/greeting && whoami >>/home/user/greeting")
            .run_cmd(["whoami >/etc/made-by", "chmod 600 /etc/made-by"], user="root")
            .copy("app", "/home/user/app")
            .copy("*.txt", "/srv/", user="root", mode=0o640)
            .make_dir("/home/user/data")
            .set_workdir("/home/user/app")
            .run_cmd("python3 main.py >/home/user/ran")
        )

    async def test_build_and_use(self):
        for template, sandbox in self.forms:
            with self.subTest(template.__name__):
                name, lines = self.named(), []
                self.assertFalse(await did(template.exists(name)))
                info = await did(template.build(self.recipe(template), name, on_build_logs=lines.append))
                self.assertTrue(info.build_id)
                self.assertTrue(any("main.py" in line.message for line in lines), lines)
                self.assertTrue(await did(template.exists(name)))
                self.assertTrue(await did(template.alias_exists(name)))
                box = await did(sandbox.create(name, timeout=120))
                try:
                    out = await did(box.commands.run(
                        "cat /home/user/greeting /home/user/ran && sudo -n true 2>/dev/null; stat -c '%U %a %n' /srv/notes.txt /home/user/app/lib/one.py; ls /home/user",
                        user="root",
                    ))
                    self.assertIn('say "hello"\nuser\none\n', out.stdout)
                    self.assertIn("root 640 /srv/notes.txt", out.stdout)
                    self.assertIn("user 644 /home/user/app/lib/one.py", out.stdout)
                    self.assertIn("data", out.stdout)
                    self.assertEqual((await did(box.files.read("/etc/made-by", user="root"))).strip(), "root")
                finally:
                    await did(box.kill())
                # The same again is all in the cache, and has its files uploaded.
                again = await did(template.build_in_background(self.recipe(template), name))
                status = await did(template.get_build_status(again))
                while status.status.value in ("waiting", "building"):
                    status = await did(template.get_build_status(again))
                self.assertEqual(status.status.value, "ready", status.reason)

    async def test_programs_that_run_already(self):
        for template, sandbox in self.forms:
            with self.subTest(template.__name__):
                name = self.named()
                recipe = (
                    template().from_template("python-3.12-bare").set_workdir("/home/user/www").run_cmd("echo 'it runs' >page")
                    .set_start_cmd("python3 -m http.server 8000", wait_for_port(8000))
                )
                await did(template.build(recipe, name, memory_mb=256))
                box = await did(sandbox.create(name, timeout=120))
                try:
                    got = await did(box.commands.run("curl -s localhost:8000/page || python3 -c 'import urllib.request as u; print(u.urlopen(\"http://localhost:8000/page\").read().decode())'"))
                    self.assertEqual(got.stdout.strip(), "it runs")
                finally:
                    await did(box.kill())

    async def test_tags(self):
        for template, sandbox in self.forms:
            with self.subTest(template.__name__):
                name = self.named()

                def recipe(version):
                    return template().from_template("python-3.12-bare").run_cmd(f"echo {version} >/home/user/version")

                async def version(of):
                    box = await did(sandbox.create(of, timeout=120))
                    try:
                        return (await did(box.files.read("/home/user/version"))).strip()
                    finally:
                        await did(box.kill())

                first = await did(template.build(recipe("one"), f"{name}:v1", tags=["old", "default"]))
                self.assertEqual(first.tags, ["v1", "old", "default"])
                second = await did(template.build(recipe("two"), f"{name}:v2"))
                self.assertEqual(second.tags, ["v2"])
                self.assertEqual([await version(f"{name}{tag}") for tag in (":v1", ":v2", ":old", "", ":default")], ["one", "two", "one", "one", "one"])
                info = await did(template.assign_tags(f"{name}:v2", ["stable", "default"]))
                self.assertEqual(info.tags, ["stable", "default"])
                self.assertEqual([await version(f"{name}{tag}") for tag in ("", ":stable", ":v1")], ["two", "two", "one"])
                tags = {t.tag: t.build_id for t in await did(template.get_tags(name))}
                self.assertEqual(set(tags), {"v1", "v2", "old", "stable", "default"})
                self.assertEqual(tags["stable"], info.build_id)
                self.assertEqual(tags["v1"], tags["old"])
                self.assertNotEqual(tags["v1"], tags["v2"])
                await did(template.remove_tags(name, ["old", "stable"]))
                self.assertEqual({t.tag for t in await did(template.get_tags(name))}, {"v1", "v2", "default"})
                with self.assertRaises(SandboxException):
                    await did(sandbox.create(f"{name}:old", timeout=60))
                with self.assertRaises(TemplateException):
                    await did(template.assign_tags(f"{name}:none", "x"))
                with self.assertRaises(TemplateException):
                    await did(template.assign_tags("base", "x"))
                with self.assertRaises(TemplateException):
                    await did(template.remove_tags(name, "none"))
                with self.assertRaises(TemplateException):
                    await did(template.get_tags("nosuchtemplate"))

    async def test_failures_say_why(self):
        for template, _ in self.forms:
            with self.subTest(template.__name__):
                name = self.named()
                with self.assertRaises(BuildException) as caught:
                    await did(template.build(template().from_template("base").run_cmd("echo almost; exit 3"), name))
                self.assertIn("3", str(caught.exception))
                self.assertFalse(await did(template.exists(name)))
                with self.assertRaises(BuildException) as caught:
                    await did(template.build(template().from_template("base").set_start_cmd("echo no; exit 4", wait_for_file("/tmp/x")), name))
                self.assertIn("exit code 4", str(caught.exception))
                with self.assertRaises(BuildException):
                    await did(template.build(template().from_template("base"), "base"))

    async def test_dockerfile(self):
        recipe = Template().from_dockerfile("FROM python-3.12\nRUN echo built >/home/user/how\nENV A=b\n")
        self.assertIn("python-3.12", Template.to_json(recipe))
        name = self.named()
        Template.build(recipe, name, on_build_logs=default_build_logger())
        with Sandbox.create(name, timeout=120) as box:
            self.assertEqual(box.files.read("/home/user/how"), "built\n")


if __name__ == "__main__":
    suite.main()
