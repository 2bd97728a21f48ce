# Objects of known classes in known numbers: a step for each line `go`, each answered by what is still held, as JSON.
# `quit N` ends it.
class Dog
  @name : String
  @age : Int32

  def initialize(@name, @age)
  end
end

class Cat
  @lives = 9
end

class Node(T)
  @value : T

  def initialize(@value)
  end
end

class Big
  @data = uninitialized StaticArray(UInt8, 4096)
end

KENNEL = [] of Dog
NODES  = [] of Node(Int32)

def make_dogs(count)
  count.times { |number| KENNEL << Dog.new("dog number #{number}", number) }
end

def make_cats(count)
  count.times { Cat.new }
end

def make_nodes(count)
  count.times { |number| NODES << Node(Int32).new(number) }
end

def make_big(count)
  count.times { Big.new }
end

# From a fiber, which has a stack of its own.
def make_in_fiber
  done = Channel(Nil).new
  spawn do
    make_nodes(100)
    done.send(nil)
  end
  done.receive
end

def first_step
  make_dogs(1500)
  make_cats(5000)
  make_nodes(200)
  make_big(20)
end

def second_step
  make_in_fiber
  KENNEL.truncate(0, 1000)
  GC.collect
  GC.collect
end

puts "ready #{Process.pid}"
STDOUT.flush
step = 0
while line = gets
  exit line[5..].to_i if line.starts_with?("quit ")
  first_step if step == 0
  second_step if step == 1
  step += 1
  puts %({"Dog":#{KENNEL.size},"Node(Int32)":#{NODES.size}})
  STDOUT.flush
end
